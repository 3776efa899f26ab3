"""The Kotlin of an Android package, compiled without the Android SDK: ExecuTorch's classes, the
compiler and coroutines are the real ones, android.* is android_stubs.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path

import phone_tools
import pytest

EXECUTORCH = ("react-native-executorch", "0.9.3")
"""An npm package that carries ExecuTorch's own classes.jar for Android."""

LANGUAGE = "2.2"
"""Kotlin as the project's Gradle plugin reads it."""

HERE = Path(__file__).parent


def stubs():
    """The folder of the compiled stubs. Skips the test where there is no Java compiler."""
    if shutil.which("javac") is None:
        pytest.skip(
            "javac is needed to compile stand-ins for Android's classes (Debian: apt install"
            " openjdk-17-jdk-headless)"
        )
    sources = sorted((HERE / "android_stubs").rglob("*.java"))
    name = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:16]

    def make(folder):
        annotations = phone_tools.kotlin_compiler() / "annotations-13.0.jar"
        done = subprocess.run(
            ["javac", "-d", str(folder), "-cp", str(annotations), *map(str, sources)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    return phone_tools.kept(f"android-stubs-{name}", make)


def classpath():
    """What the code of a package is compiled and run with."""
    if not phone_tools.ANDROID_JSON.is_file():
        pytest.skip(
            f"{phone_tools.ANDROID_JSON} is needed, Android's own org.json (Debian: apt install"
            " libandroid-json-java)"
        )
    kotlin = phone_tools.kotlin_compiler()
    executorch = phone_tools.npm_package(*EXECUTORCH) / "android" / "libs" / "classes.jar"
    return [
        executorch,
        kotlin / "kotlin-stdlib.jar",
        kotlin / "kotlinx-coroutines-core-jvm.jar",
        phone_tools.ANDROID_JSON,
        stubs(),
    ]


def compile_projects(projects, classes, *more):
    """Compile all Kotlin of the projects, and the files `more`, into the folder `classes`: no
    errors, and no warnings but that samples are no library.
    """
    compiler = phone_tools.kotlin_compiler()
    command = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        f"{compiler}/*",
        "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler",
        "-no-stdlib",
        "-no-reflect",
        "-language-version",
        LANGUAGE,
        "-api-version",
        LANGUAGE,
        "-jvm-target",
        "17",
        "-Xexplicit-api=warning",
        "-cp",
        ":".join(map(str, classpath())),
        "-d",
        str(classes),
        *(str(file) for project in projects for file in sorted(project.rglob("*.kt"))),
        *map(str, more),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-8000:]
    said = [line for line in done.stderr.splitlines() if ": warning:" in line]
    assert [line for line in said if "/sample/" not in line or "explicit API mode" not in line] == []


def run_java(classes, main, *arguments, resources=(), cwd=None):
    """What a class's main prints."""
    path = ":".join(map(str, [classes, *resources, *classpath()]))
    done = subprocess.run(
        ["java", "-cp", path, main, *map(str, arguments)], capture_output=True, text=True, cwd=cwd
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-2000:]
    return done.stdout
