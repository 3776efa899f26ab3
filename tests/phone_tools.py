"""Tools of phones that tests need and no package of Python has: npm packages, kept in a folder of
this user; Kotlin, compiled and run on the JVM.

EDGEEXPORT_TEST_TOOLS is the folder to keep them in.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import platformdirs
import pytest

KOTLIN = ("kotlin-compiler", "2.4.20")
ANDROID_JSON = Path("/usr/share/java/com.android.json.jar")
"""org.json as Android has it, from Debian's libandroid-json-java."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""Java for some seconds: the thorough compiler of its own code would not pay."""

MOBILE = Path(__file__).parents[1] / "edgeexport" / "ship" / "mobile"


def kept(name, make):
    """The folder `name`, made once by `make(folder)` and kept; another process may do the same at
    the same time.
    """
    home = Path(
        os.environ.get("EDGEEXPORT_TEST_TOOLS") or platformdirs.user_cache_path("edgeexport") / "test-tools"
    )
    found = home / name
    if not found.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix=f".{name}-") as partial:
            make(Path(partial) / "made")
            try:
                (Path(partial) / "made").rename(found)
            except OSError:
                assert found.is_dir()  # the other was faster
    return found


def npm_package(name, version):
    """The folder of an npm package, fetched when it is first needed.

    Skips the test where it cannot be had.
    """
    return kept(f"{name.replace('/', '+')}-{version}", lambda folder: _fetch(f"{name}@{version}", folder))


def _fetch(package, folder):
    if shutil.which("npm") is None:
        pytest.skip(f"npm is needed to fetch {package} (Debian: apt install npm)")
    folder.mkdir()
    done = subprocess.run(
        ["npm", "pack", "--silent", package], cwd=folder.parent, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"npm could not fetch {package}: {done.stderr.strip()[-200:]}")
    with tarfile.open(folder.parent / done.stdout.split()[-1]) as archive:
        archive.extractall(folder, filter="data")
    for item in (folder / "package").iterdir():
        item.rename(folder / item.name)
    (folder / "package").rmdir()


def kotlin_compiler():
    """The folder of the Kotlin compiler's jars.

    Skips the test where there is no Java, or the compiler cannot be had.
    """
    if shutil.which("java") is None:
        pytest.skip("Java is needed to compile and run Kotlin (Debian: apt install openjdk-17-jre-headless)")
    return npm_package(*KOTLIN) / "lib"


def compile_kotlin(sources, classpath=(), options=()):
    """The folder of the classes of Kotlin `sources` (text by file name), compiled once for these
    sources; warnings are errors.
    """
    compiler = kotlin_compiler()
    said = json.dumps([sorted(sources.items()), [str(c) for c in classpath], options, KOTLIN])

    def make(folder):
        with tempfile.TemporaryDirectory() as files:
            for name, text in sources.items():
                (Path(files) / name).write_text(text, encoding="utf-8")
            jars = ":".join(map(str, (compiler / "kotlin-stdlib.jar", *classpath)))
            done = subprocess.run(
                [
                    "java",
                    *SHORT_LIVED,
                    "-cp",
                    f"{compiler}/*",
                    "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler",
                    "-no-stdlib",
                    "-no-reflect",
                    "-Werror",
                    *options,
                    "-cp",
                    jars,
                    "-d",
                    str(folder),
                    files,
                ],
                capture_output=True,
                text=True,
            )
        assert done.returncode == 0, done.stderr[-8000:]

    return kept(f"kotlin-{hashlib.sha256(said.encode()).hexdigest()[:16]}", make)


class PureKotlin:
    """The pipelines in Kotlin, without Android, in a process of Java that answers questions
    (tests/kotlin/Main.kt).
    """

    def __init__(self):
        if not ANDROID_JSON.is_file():
            pytest.skip(
                f"{ANDROID_JSON} is needed, Android's own org.json (Debian: apt install libandroid-json-java)"
            )
        files = [
            *(MOBILE / "android" / "pure").glob("*.kt"),
            *(MOBILE / "android" / "pure_test").glob("*.kt"),
            Path(__file__).parent / "kotlin" / "Main.kt",
        ]
        sources = {
            file.name: file.read_text(encoding="utf-8").replace("{{ id }}", "com.example.tried")
            for file in files
        }
        classes = compile_kotlin(sources, (ANDROID_JSON,), ("-Xexplicit-api=strict",))
        classpath = f"{classes}:{kotlin_compiler() / 'kotlin-stdlib.jar'}:{ANDROID_JSON}"
        self._java = subprocess.Popen(
            ["java", *SHORT_LIVED, "-Xmx2g", "-cp", classpath, "com.example.tried.MainKt"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, do, **what):
        """What it answers: JSON data; {"failed": ..} where a record was not met, {"refused": ..}
        where an input was not taken.
        """
        self._java.stdin.write(
            json.dumps({"do": do, **{k: str(v) if isinstance(v, Path) else v for k, v in what.items()}})
            + "\n"
        )
        self._java.stdin.flush()
        return json.loads(self._java.stdout.readline())["answer"]

    def replay(self, golden, manifest, tokenizer=None):
        """The differences of each run of the record in the folder `golden`, by name; fails the test
        where one is larger than allowed.
        """
        answer = self.ask(
            "replay", golden=golden, manifest=manifest, **({"tokenizer": tokenizer} if tokenizer else {})
        )
        assert isinstance(answer, list), answer
        return answer

    def close(self):
        self._java.stdin.close()
        self._java.wait(timeout=30)
