"""An Android library (Gradle, Kotlin), with a sample app."""

from __future__ import annotations

import functools
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from edgeexport.artifact.signatures import KEYWORDS, Argument, identifier
from edgeexport.errors import UsageError
from edgeexport.method import Dim
from edgeexport.ship.mobile import Request
from edgeexport.ship.mobile.api import Api, Function, Parameter, api_of
from edgeexport.ship.mobile.notice import notice
from edgeexport.ship.mobile.templates import environment
from edgeexport.ship.mobile.zipped import write_files

SUMMARY = "an Android library (Gradle, Kotlin) with a sample app"
LANGUAGE = "kotlin"
RUNTIME = "org.pytorch:executorch-android"
BACKENDS = frozenset({"XnnpackBackend"})
"""What is in RUNTIME, says ExecuTorch's documentation."""
DTYPES = {"float32": "FloatTensor", "int64": "LongTensor", "int32": "IntTensor", "uint8": "ByteTensor"}
GOLDEN = Path("library/src/androidTest/assets/golden")
SUFFIX = ".aar"
ON_DEMAND = True
"""Packages can leave the program out, and have the app fetch it."""

VERSIONS = {
    "gradle": "8.14",
    "android_gradle_plugin": "8.10.0",
    "kotlin": "2.2.0",
    "coroutines": "1.10.2",
    "jvm": 17,
    "compile_sdk": 36,
    "min_sdk": 24,
    "sample_min_sdk": 28,
    "junit": "4.13.2",
    "json": "20250107",
    "test_runner": "1.6.2",
    "test_junit": "1.2.1",
}
"""What the project is built with: releases that go together, says Kotlin's table of compatible
Gradle and Android plugins.
"""

MEMBERS = frozenset(
    "loaded pipeline facts tokenizer answer close it context source equals hashCode toString getClass notify"
    " notifyAll wait".split()
)
"""What the generated class has beside its functions, and every object."""

_RESERVED = KEYWORDS["java"] | KEYWORDS["kotlin"]
_LIBRARY = Path("library/src/main")
_MAIN = _LIBRARY / "kotlin"
_TEST_ASSETS = Path("library/src/androidTest/assets")

WORDS = {
    "segmentation": "Segmentation",
    "speech": "Speech",
    "captions": "Caption",
    "video": "Video",
    "pose": "Pose",
}
"""What the Kotlin code calls each pipeline."""
PIPELINES = frozenset(WORDS)
TEXT_FILES, TEXT_PIPELINES = frozenset({"TextDecoder.kt", "Tokenizer.kt"}), frozenset({"speech", "captions"})


def app_id(given: str | None, model: str) -> str:
    """The package name of the library's code: `given` if it is one, or one for trying. Raises
    UsageError.
    """
    if given is None:
        return f"com.example.{identifier(model, 'cpp').lower()}"
    segments = given.split(".")
    if len(segments) < 2 or not all(
        re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*", segment, re.ASCII) for segment in segments
    ):
        raise UsageError(
            f"'{given}' is no application id: write two or more words of letters, digits and _ with dots"
            " between them, each beginning with a letter, as com.example.sam2."
        )
    taken = next((segment for segment in segments if segment in _RESERVED), None)
    if taken is not None:
        raise UsageError(
            f"'{given}' is no application id: '{taken}' is a word of Kotlin or Java. Choose another for it."
        )
    return given


def write(request: Request, folder: Path) -> None:
    """The project: `library` with code, program and tests, `sample`, and what is to be known
    about them.
    """
    api = _api(request)
    facts = _facts(request, api)
    _write_project(facts, folder)
    _write_code(facts, api, folder)
    _write_assets(request, folder / _LIBRARY / "assets" / facts["assets"], folder / _TEST_ASSETS)
    (folder / "NOTICE").write_text(
        notice(request.manifest, f"{RUNTIME} {request.runtime_version}", request.notes), encoding="utf-8"
    )


def write_compiled(request: Request, folder: Path, classes: Path, path: Path) -> None:
    """An AAR of the library, with `classes`, a jar of what its code was compiled to.

    Raises UsageError for a jar of something else.
    """
    _refuse_classes(classes, f"{request.app_id.replace('.', '/')}/{_api(request).name}.class")
    library = folder / _LIBRARY
    files = {
        f"assets/{file.relative_to(library / 'assets').as_posix()}": file
        for file in sorted((library / "assets").rglob("*"))
        if file.is_file()
    }
    with resources.as_file(resources.files("edgeexport.ship.mobile") / "android" / "aar") as extra:
        made = path.with_name("AndroidManifest.xml")
        made.write_text(
            (extra / "AndroidManifest.xml")
            .read_text()
            .format(app_id=request.app_id, min_sdk=VERSIONS["min_sdk"]),
            encoding="utf-8",
        )
        files |= {
            "AndroidManifest.xml": made,
            "classes.jar": classes,
            "R.txt": extra / "R.txt",
            "proguard.txt": folder / "library" / "consumer-rules.pro",
            "META-INF/com/android/build/gradle/aar-metadata.properties": extra / "aar-metadata.properties",
        }
        write_files(files, path)


def _refuse_classes(classes: Path, wanted: str) -> None:
    try:
        with zipfile.ZipFile(classes) as jar:
            names = set(jar.namelist())
    except zipfile.BadZipFile as error:
        raise UsageError(f"{classes} is no jar ({error}).") from error
    if wanted not in names:
        raise UsageError(
            f"{classes} has no {wanted}: it was not compiled from this package, or with another --id."
        )
    strange = next(
        (
            name
            for name in sorted(names)
            if name.startswith(("android/", "androidx/", "org/pytorch/", "kotlin/", "kotlinx/"))
        ),
        None,
    )
    if strange is not None:
        raise UsageError(
            f"{classes} holds {strange}, which an app has from elsewhere. Give a jar of the library's own"
            " classes."
        )


def _api(request: Request) -> Api:
    """The typed API; its class has a name that nothing in the library's code uses."""
    words = {word for _, text in _sources() for word in re.findall(r"\b[A-Z]\w*", text)}
    return api_of(request.manifest.model.name, request.calls, LANGUAGE, MEMBERS, words)


def _facts(request: Request, api: Api) -> dict[str, Any]:
    manifest = request.manifest
    return {
        "id": request.app_id,
        "api": api,
        "pipeline": request.pipeline,
        "versions": VERSIONS,
        "runtime": RUNTIME,
        "runtime_version": request.runtime_version,
        "model": manifest.model,
        "summary": manifest.model.summary,
        "program": manifest.program,
        "program_sha256": request.program_sha256,
        "program_bytes": request.artifact.program_path.stat().st_size,
        "assets": f"models/{manifest.model.name}",
        "notes": request.notes,
        "tokenizer": manifest.prepare["tokenizer"] if request.pipeline in TEXT_PIPELINES else None,
        "figures": f"{WORDS[request.pipeline].lower()}Figures" if request.pipeline else None,
        "on_demand": request.on_demand,
    }


PROJECT = {
    "settings.gradle.kts": "settings.gradle.kts.j2",
    "build.gradle.kts": "build.gradle.kts.j2",
    "gradle.properties": "gradle.properties.j2",
    ".gitignore": "gitignore",
    "README.md": "README.md.j2",
    "library/build.gradle.kts": "library.gradle.kts.j2",
    "library/consumer-rules.pro": "consumer-rules.pro",
    "library/src/main/AndroidManifest.xml": "library.AndroidManifest.xml",
    "sample/build.gradle.kts": "sample.gradle.kts.j2",
    "sample/src/main/AndroidManifest.xml": "sample.AndroidManifest.xml.j2",
}
"""The files of the project that are no code, with their templates in `android/project/`."""


def _write_project(facts: dict[str, Any], folder: Path) -> None:
    for name, template in PROJECT.items():
        _write(folder / name, _environment().get_template(f"android/project/{template}").render(facts))


def _write_code(facts: dict[str, Any], api: Api, folder: Path) -> None:
    package = Path(*facts["id"].split("."))
    for kind, home in {"pure": _MAIN, "device": _MAIN, "pure_test": "library/src/sharedTest/kotlin"}.items():
        for name, text in _sources(kind):
            if _belongs(name, facts["pipeline"]):
                _write(folder / home / package / name, _environment().from_string(text).render(facts))
    generated = {
        _MAIN / package / f"{api.name}.kt": "Model",
        f"library/src/androidTest/kotlin/{package}/OnDeviceTest.kt": "device_tests/OnDeviceTest",
    }
    if facts["pipeline"]:
        generated[f"library/src/test/kotlin/{package}/ReplayTest.kt"] = "jvm_tests/ReplayTest"
    screens = Path("sample/src/main/kotlin") / package / "sample"
    generated |= {
        screens / "Screen.kt": "sample/Screen",
        screens / "MainActivity.kt": f"sample/{facts['pipeline'] or 'tensors'}",
    }
    for name, template in generated.items():
        _write(folder / name, _environment().get_template(f"android/{template}.kt.j2").render(facts))


def _belongs(name: str, pipeline: str | None) -> bool:
    """Whether a source file is for a package of this pipeline: what is particular to another is
    not.
    """
    if name in TEXT_FILES:
        return pipeline in TEXT_PIPELINES
    return not any(
        name in (f"{word}Pipeline.kt", f"{word}Golden.kt") for key, word in WORDS.items() if key != pipeline
    )


def _write_assets(request: Request, home: Path, of_tests: Path) -> None:
    """The program (on demand, for the tests only), what it needs, and of the manifest what an app
    needs: nothing of the machine that it was built on.
    """
    home.mkdir(parents=True)
    manifest = request.manifest
    program, tokenizer = manifest.program, manifest.prepare.get("tokenizer", "")
    kept = [name for name in (program, tokenizer) if name in manifest.files]
    for name in kept:
        place = of_tests if request.on_demand and name == program else home
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(request.artifact.path / name, place / name)
    _write(home / "manifest.json", json.dumps(manifest.for_app(kept), indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _sources(*kinds: str) -> Iterator[tuple[str, str]]:
    """Name and text of the Kotlin files, templates of nothing but the package's name; without a
    kind, of those that an app gets.
    """
    for kind in kinds or ("pure", "device"):
        for file in sorted(
            (resources.files("edgeexport.ship.mobile") / "android" / kind).iterdir(), key=lambda f: f.name
        ):
            if file.name.endswith(".kt"):
                yield file.name, file.read_text(encoding="utf-8")


@functools.cache
def _environment():
    return environment(
        comment=_comment,
        string=_string,
        type=DTYPES.__getitem__,
        tensor=_tensor,
        zeros=_zeros,
        parameters=_parameters,
        short_parameters=_short_parameters,
        short_arguments=_short_arguments,
    )


def _comment(text: str) -> str:
    """Text that ends no comment, begins none, and is no link."""
    return (
        text.replace("*/", "* /").replace("/*", "/ *").replace("[", "(").replace("]", ")").replace("\n", " ")
    )


def _string(text: str) -> str:
    """A Kotlin string."""
    return json.dumps(text).replace("$", "\\$").replace("\\f", "\\u000c")


def _tensor(argument: Argument) -> str:
    """What a tensor must be, for people: float32 (batch, 3, 224, 224)."""
    sizes = (size.name if isinstance(size, Dim) else str(size) for size in argument.shape)
    return f"{argument.dtype} ({', '.join(sizes)})"


def _parameters(parameters: tuple[Parameter, ...]) -> str:
    return ", ".join(f"{p.name}: {DTYPES[p.argument.dtype]}" for p in parameters)


def _zeros(argument: Argument) -> str:
    """A tensor of zeros at the least sizes, as code."""
    kind = DTYPES[argument.dtype]
    return (
        f"{kind}(longArrayOf({', '.join(map(str, argument.sizes))}),"
        f" {kind.removesuffix('Tensor')}Array({argument.count}))"
    )


def _short_parameters(function: Function, api: Api) -> str:
    answers = [f"{name}: {api.outputs_of(name)}" for name in function.answers]
    return ", ".join([_parameters(function.own)] * bool(function.own) + answers)


def _short_arguments(function: Function) -> str:
    return ", ".join(f"{p.answer[0]}.{p.answer[1]}" if p.answer else p.name for p in function.parameters)
