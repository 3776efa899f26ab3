# Sourced by quickstart and test: a virtual environment in .venv with this project in it.
# Usage: setup EXTRAS   (for example: setup "" or setup "[test]")

fail() { echo "error: $*" >&2; exit 1; }

setup() {
    local python=""
    for candidate in python3.11 python3.12 python3.13 python3; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "Python 3.11 or newer is needed; install it and run this again."
    if [ ! -x .venv/bin/python ]; then
        echo "== making a virtual environment in .venv with $("$python" --version)"
        "$python" -m venv .venv || fail "no virtual environment could be made; on Debian: apt install python3-venv"
    fi
    echo "== installing edgeexport$1 (a few minutes the first time, seconds after that)"
    # torch first and exactly: executorch declares no pin, and another torch would not fit it.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 2> >(grep -v WARNING >&2) || fail "torch 2.13.0 could not be installed; is the package index reachable?"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".$1" 2> >(grep -v WARNING >&2) || fail "the dependencies could not be installed; see above."
}
