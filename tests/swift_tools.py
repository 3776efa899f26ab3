"""Swift for tests: a compiler where there is one, the grammar everywhere."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import jinja2
import platformdirs
import pytest

IOS = Path(__file__).parents[1] / "edgeexport" / "ship" / "mobile" / "ios"
OURS = Path(__file__).parent / "swift"
PIPELINES = ("segmentation", "speech", "captions", "video", "pose")


def swift_run():
    """The command before one of the Swift toolchain: that of scripts/fetch-swift, or nothing where
    it is installed. Skips the test where there is none.
    """
    fetched = (
        Path(os.environ.get("EDGEEXPORT_SWIFT") or platformdirs.user_cache_path("edgeexport") / "swift")
        / "swift-run"
    )
    if fetched.is_file():
        return [str(fetched)]
    if shutil.which("swiftc") is None:
        pytest.skip("there is no Swift compiler: scripts/fetch-swift")
    return []


def sources(*kinds):
    """The package's own sources of these folders by file name."""
    return {
        file.name: file.read_text(encoding="utf-8")
        for kind in kinds
        for file in sorted((IOS / kind).glob("*.swift"))
    }


def test_sources():
    """The tests of every pipeline, as they are in a module together with the sources."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    made = {"Replay.swift": "Replay"} | {f"{name}.swift": name for name in PIPELINES}
    texts = {
        name: (
            environment.from_string((IOS / "tests" / f"{template}.swift.j2").read_text()).render(
                module="Tried"
            )
        )
        for name, template in made.items()
    }
    golden = [
        environment.from_string((IOS / "tests" / "Golden.swift.j2").read_text()).render(
            module="Tried", pipeline=name
        )
        for name in ("pose", "speech")
    ]
    sound = golden[1][golden[1].index("struct GoldenSound") : golden[1].index("var goldenFolder")]
    texts["Golden.swift"] = golden[0] + "\n" + sound
    return {name: text.replace("@testable import Tried\n", "") for name, text in texts.items()}


test_sources.__test__ = False


def swiftc(folder, files, *options):
    """Compiles the files (text by name) in a new folder; warnings are errors in the text that comes
    back. Fails the test where it does not go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [*swift_run(), "swiftc", *options, *sorted(files)], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout[-2000:]
    return done.stderr


class PureSwift:
    """The pipelines in Swift with the tests of a package, compiled to one program
    (tests/swift/Main.swift).
    """

    def __init__(self, home):
        self.run = swift_run()
        files = sources("pure") | test_sources() | {"Main.swift": (OURS / "Main.swift").read_text()}
        digest = hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()[:16]
        self.home = Path(platformdirs.user_cache_path("edgeexport")) / "test-tools" / f"swift-{digest}"
        if not (self.home / "tried").is_file():
            said = swiftc(
                home / "build",
                files,
                "-O",
                "-parse-as-library",
                "-strict-concurrency=complete",
                "-module-name",
                "Tried",
                "-o",
                "tried",
            )
            assert "warning:" not in said, said
            self.home.mkdir(parents=True, exist_ok=True)
            shutil.copy(home / "build" / "tried", self.home / "partial")
            (self.home / "partial").rename(self.home / "tried")

    def _go(self, folder, argument, given=""):
        shutil.copy(self.home / "tried", folder / "tried")
        command = [*self.run, "./tried", argument]
        return subprocess.run(
            command,
            cwd=folder,
            input=given,
            capture_output=True,
            text=True,
            env={**os.environ, "RECORD": str(folder)},
        )

    def ask(self, folder, *questions):
        """The answers to questions, whose files are in `folder`."""
        done = self._go(folder, "ask", "".join(json.dumps(q) + "\n" for q in questions))
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def replay(self, folder, pipeline):
        """Runs the test of a package on the record, manifest and tokenizer in `folder`: (whether
        it passed, what it printed).
        """
        done = self._go(folder, pipeline)
        return (
            done.returncode == 0 and "Executed 2 tests, with 0 failures" in done.stdout + done.stderr,
            done.stdout + done.stderr,
        )
