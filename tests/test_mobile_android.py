"""Packages for Android: what is in them, what is refused, and their Kotlin, compiled and run on the
JVM.
"""

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from android_kotlin import compile_projects, run_java
from in_process import run_command

import edgeexport
from edgeexport.artifact.manifest import StateEntry
from edgeexport.artifact.signatures import calls_of, identifier, type_name, with_own_state
from edgeexport.errors import ArtifactError, UnknownName, UsageError
from edgeexport.samplers import OutputOf
from edgeexport.ship.mobile import RECORD, Request, damaged, package
from edgeexport.ship.mobile.api import api_of
from edgeexport.ship.mobile.platforms import android

CHECKS = Path(__file__).parent / "android_checks" / "Checks.kt"


def changed(artifact, **facts):
    """The same artifact with another manifest in memory."""
    return replace(artifact, manifest=replace(artifact.manifest, **facts))


def rewritten(folder, change):
    """The folder of an artifact whose manifest was changed."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="module")
def toy_package(toy_artifact, tmp_path_factory):
    """The toy model as an Android library, with a zip; tests must not change it."""
    return package(
        toy_artifact.path,
        "android",
        tmp_path_factory.mktemp("packages") / "toy",
        "com.example.toy",
        allow_random=True,
        zipped=True,
    )


@pytest.mark.parametrize(
    ("language", "name", "made"),
    [
        ("kotlin", "encode_image", "encodeImage"),
        ("kotlin", "in", "in_"),
        ("kotlin", "when", "when_"),
        ("kotlin", "3d_points", "_3dPoints"),
        ("kotlin", "größe-x", "grEX"),
        ("kotlin", "__", "value"),
        ("swift", "where", "where_"),
        ("swift", "self", "self_"),
        ("cpp", "template", "template_"),
        ("cpp", "encode.image", "encode_image"),
        ("kotlin", "template", "template"),
    ],
)
def test_names_are_names_of_the_language(language, name, made):
    assert identifier(name, language) == (made if "ö" not in name else identifier("gr_e_x", language))


def test_names_of_classes():
    assert [type_name(name) for name in ("sam2-tiny", "whisper-tiny.en", "yolo11n-pose", "3d", "-")] == [
        "Sam2Tiny",
        "WhisperTinyEn",
        "Yolo11nPose",
        "Model3d",
        "Model",
    ]
    assert type_name("tensor", {"Tensor", "TensorModel"}) == "TensorModelModel"


def test_no_two_names_of_an_api_are_the_same(toy_artifact):
    (call,) = calls_of(toy_artifact)
    (argument,), (result,) = call.arguments, call.results
    twice = [replace(argument, name=name) for name in ("a_b", "aB", "class", "classify", "loaded")]
    calls = [
        replace(call, method=method, arguments=tuple(twice), results=(result, result))
        for method in ("classify", "Classify", "close")
    ]
    api = api_of("string", calls, "kotlin", {"close", "loaded"}, {"String"})
    assert [f.name for f in api.functions] == ["classify", "Classify", "close_"] and api.name == "StringModel"
    assert len({f.outputs for f in api.functions}) == 3
    assert [p.name for p in api.functions[0].parameters] == ["aB", "aB_", "class_", "classify_", "loaded_"]
    assert [p.name for p in api.functions[0].properties] == ["logits", "logits_"]


def test_a_method_that_fills_the_cache_of_another_is_left_out(toy_artifact):
    (call,) = calls_of(toy_artifact)
    own, passed = (call.arguments[0], replace(call.arguments[0], name="keys", source=("encode", "logits")))
    cache = (StateEntry("cache.keys", "float32", (1,)),)
    writing = [
        replace(call, method=method, arguments=(passed, own), state=cache)
        for method in ("prefill", "decode_step")
    ]
    calls = [replace(call, method="encode"), *writing]
    assert [c.method for c in with_own_state(calls)] == ["encode", "decode_step"]
    api = api_of("toy", calls, "kotlin")
    step = api.functions[1]
    assert (
        api.left_out == ("prefill",)
        and step.answers == ("encode",)
        and [p.name for p in step.own] == ["image"]
        and step.parameters[0].answer == ("encode", "logits")
    )


@pytest.mark.parametrize(
    "given",
    [
        "sam2",
        "com.example.2d",
        "com..x",
        "com.example.sam-2",
        "com.example.in",
        "com.example.new",
        ".a.b",
        "com.exämple.x",
        "com/example.x",
        "com.example.x\n",
    ],
)
def test_what_is_no_application_id(given):
    with pytest.raises(UsageError, match="is no application id"):
        android.app_id(given, "toy")


def test_application_ids():
    assert (
        android.app_id("com.Example_1.sam2", "toy") == "com.Example_1.sam2"
        and android.app_id(None, "whisper-tiny.en") == "com.example.whisper_tiny_en"
    )
    assert android.app_id(None, "class") == "com.example.class_"


def test_what_is_in_a_package(toy_artifact, toy_package):
    folder = toy_package.path
    assert (
        damaged(folder) == []
        and toy_package.pipeline is None
        and "typed tensor API only" in toy_package.notes[0]
    )
    record = json.loads((folder / RECORD).read_text())
    assert set(record["files"]) | {RECORD} == {
        str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()
    }
    assets = folder / "library/src/main/assets/models/toy"
    assert (assets / "toy.pte").read_bytes() == toy_artifact.program_path.read_bytes()
    assert json.loads((assets / "manifest.json").read_text())["files"] == {
        "toy.pte": vars(toy_artifact.manifest.files["toy.pte"])
    }
    golden = json.loads((folder / android.GOLDEN / "golden.json").read_text())
    assert (
        [case["method"] for case in golden["cases"]] == ["classify"]
        and golden["pipeline"] is None
        and golden["runs"] == []
    )
    built = toy_artifact.manifest.versions["executorch"]
    assert (
        f'api("org.pytorch:executorch-android:{built}")' in (folder / "library/build.gradle.kts").read_text()
    )
    notice, readme = ((folder / name).read_text() for name in ("NOTICE", "README.md"))
    assert (
        "Apache-2.0" in notice
        and toy_artifact.manifest.weights.sha256 in notice
        and "random, seed 0" in notice
    )
    assert "classify(image: FloatTensor): ClassifyOutputs" in readme and all(
        note in readme and note in notice for note in toy_package.notes
    )
    assert not list(folder.glob("library/src/main/kotlin/**/*Pipeline.kt")) and not list(
        folder.glob("library/src/test/**/*.kt")
    )
    (folder / "NOTICE").write_text(notice + " ")
    assert damaged(folder) == ["NOTICE"]
    (folder / "NOTICE").write_text(notice)


def test_a_package_tells_nothing_of_the_machine_it_was_made_on(toy_package):
    for file in toy_package.path.rglob("*"):
        if file.is_file() and file.suffix not in (".bin", ".pte"):
            text = file.read_text()
            assert (
                str(Path.cwd()) not in text
                and str(Path.home()) not in text
                and "{{" not in text.replace("${{", "")
                and "{%" not in text
            ), file


def test_a_package_is_the_same_whenever_it_is_written(toy_artifact, toy_package, tmp_path):
    again = package(
        toy_artifact.path, "android", tmp_path / "toy", "com.example.toy", allow_random=True, zipped=True
    )
    assert (again.path / RECORD).read_bytes() == (toy_package.path / RECORD).read_bytes()
    assert again.files[0].read_bytes() == toy_package.files[0].read_bytes()
    with zipfile.ZipFile(again.files[0]) as archive:
        assert sorted(archive.namelist()) == sorted(
            f"toy/{f.relative_to(again.path)}" for f in again.path.rglob("*") if f.is_file()
        )
        assert (
            archive.read("toy/library/src/main/assets/models/toy/toy.pte")
            == toy_artifact.program_path.read_bytes()
        )


def test_a_checkpoint_is_named_without_its_folder(toy_artifact, tmp_path):
    copy = rewritten(
        Path(shutil.copytree(toy_artifact.path, tmp_path / "toy")),
        lambda m: m["weights"].update(
            source="checkpoint",
            path="/home/somebody/secret/toy.safetensors",
            origin="/home/somebody/secret/toy.safetensors",
        ),
    )
    made = package(copy, "android")
    assert made.path == tmp_path / "android" and made.app_id == "com.example.toy"
    assert "toy.safetensors" in (made.path / "NOTICE").read_text()
    assert not [f for f in made.path.rglob("*") if f.is_file() and b"somebody" in f.read_bytes()]


def test_random_weights_and_failed_checks_are_refused(toy_copy, tmp_path):
    with pytest.raises(UsageError, match="has random weights.*--allow-random"):
        package(toy_copy, "android", tmp_path / "out")
    rewritten(toy_copy, lambda m: m["findings"][0].update(passed=False))
    with pytest.raises(UsageError, match="failed its checks.*--allow-failed"):
        package(toy_copy, "android", tmp_path / "out", allow_random=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy"]
    made = package(toy_copy, "android", tmp_path / "out", allow_random=True, allow_failed=True)
    assert (
        any("FAILED its checks" in note for note in made.notes)
        and "FAILED its checks" in (made.path / "NOTICE").read_text()
    )


def test_a_copyleft_licence_is_said(toy_copy, tmp_path):
    rewritten(toy_copy, lambda m: m["model"]["source"].update(licence="AGPL-3.0"))
    assert any(
        "AGPL-3.0: it asks for the source of the app" in note
        for note in package(toy_copy, "android", tmp_path / "out", allow_random=True).notes
    )


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("0.9.0", "is older than"),
        ("1.4.7", "Give --executorch-version 1.5 or newer"),
        ("1", "no version of ExecuTorch"),
        ("new", "no version"),
        ("1.5.0.1", "no version"),
    ],
)
def test_a_runtime_that_need_not_load_the_program_is_refused(toy_copy, tmp_path, wanted, said):
    rewritten(toy_copy, lambda m: m["versions"].update(executorch="1.5.1"))
    with pytest.raises(UsageError, match=said):
        package(toy_copy, "android", tmp_path / "out", runtime_version=wanted, allow_random=True)


@pytest.mark.parametrize(
    ("wanted", "noted"),
    [("1.5.0", False), ("1.6.0-rc1", False), ("1.7.2", True), ("2.0.0", True), (None, False)],
)
def test_runtimes_that_load_the_program(toy_copy, tmp_path, wanted, noted):
    rewritten(toy_copy, lambda m: m["versions"].update(executorch="1.5.1+cpu"))
    made = package(toy_copy, "android", tmp_path / "out", runtime_version=wanted, allow_random=True)
    assert any("may be further on" in note for note in made.notes) == noted
    assert f'executorch-android:{wanted or "1.5.1"}")' in (made.path / "library/build.gradle.kts").read_text()


def test_what_android_has_no_runtime_or_tensors_for_is_refused(toy_artifact, toy_copy, tmp_path, monkeypatch):
    monkeypatch.setattr(android, "BACKENDS", frozenset({"VulkanBackend"}))
    with pytest.raises(
        UsageError,
        match=(
            "needs XnnpackBackend, which org.pytorch:executorch-android does not have. It has VulkanBackend"
        ),
    ):
        package(toy_copy, "android", tmp_path / "out", allow_random=True)
    monkeypatch.undo()
    rewritten(toy_copy, lambda m: m["methods"][0]["outputs"][0].update(dtype="float64"))
    with pytest.raises(
        UsageError,
        match="'logits' of 'classify' is float64, which a package has no tensors of. It has float32",
    ):
        package(toy_copy, "android", tmp_path / "out", allow_random=True)


def test_a_server_package_is_refused_and_an_archive_taken(toy_both, tmp_path):
    with pytest.raises(UsageError, match="which is for servers"):
        package(toy_both[1].path, "android", tmp_path / "out", allow_random=True)
    archive = edgeexport.bundle([a.path for a in toy_both], tmp_path / "toy.pt2")
    with pytest.raises(UsageError, match="which is for servers"):
        package(archive / "aoti-fp32", "android", tmp_path / "out", allow_random=True)
    assert package(archive, "android", allow_random=True).path == tmp_path / "android"
    assert (
        package(archive / "xnnpack-fp32", "android", allow_random=True, force=True).path
        == tmp_path / "android"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["android", "toy.pt2"]


def test_where_a_package_may_not_be_written(toy_copy, tmp_path):
    for out in (toy_copy, toy_copy / "android", tmp_path / "x" / ".." / "toy" / "a"):
        with pytest.raises(ArtifactError, match="inside the artifact"):
            package(toy_copy, "android", out, allow_random=True, force=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="exists already. Give --force"):
        package(toy_copy, "android", other, allow_random=True)
    with pytest.raises(ArtifactError, match="is not a package, so --force does not replace it"):
        package(toy_copy, "android", other, allow_random=True, force=True)
    (tmp_path / "new.zip").write_text("mine")
    with pytest.raises(ArtifactError, match="new.zip exists already"):
        package(toy_copy, "android", tmp_path / "new", allow_random=True, zipped=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.zip", "other", "toy"]


def test_a_package_is_replaced_with_force_only(toy_copy, tmp_path):
    first = package(toy_copy, "android", tmp_path / "out", "com.example.one", allow_random=True)
    with pytest.raises(ArtifactError, match="exists already"):
        package(toy_copy, "android", tmp_path / "out", "com.example.two", allow_random=True)
    assert json.loads((first.path / RECORD).read_text())["app_id"] == "com.example.one"
    package(toy_copy, "android", tmp_path / "out", "com.example.two", allow_random=True, force=True)
    assert json.loads((first.path / RECORD).read_text())["app_id"] == "com.example.two"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "toy"]


def test_nothing_half_written_is_left(toy_copy, tmp_path, monkeypatch):
    def full(request, folder):
        (folder / "half").write_text("")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(android, "write", full)
    with pytest.raises(ArtifactError, match="the disk is full"):
        package(toy_copy, "android", tmp_path / "out", allow_random=True, zipped=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy"]


def test_the_command(toy_copy, tmp_path):
    def run(*arguments):
        return run_command("package", *arguments)

    done = run(
        toy_copy, "--platform", "android", "--id", "com.example.toy", "--allow-random", "--zip", "--json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (
        said["path"] == str(tmp_path / "android")
        and said["files"] == [str(tmp_path / "android.zip")]
        and said["pipeline"] is None
        and len(said["notes"]) == 2
    )
    again = run(toy_copy, "--platform", "android", "--allow-random")
    assert again.returncode == 2 and "--force" in again.stderr and "Traceback" not in again.stderr
    shown = run(toy_copy, "--platform", "android", "--allow-random", "--zip", "--force")
    assert (
        shown.returncode == 0 and "Note: RANDOM weights" in shown.stdout and "android.zip (" in shown.stdout
    )
    wrong = run(toy_copy, "--platform", "androd", "--allow-random")
    assert wrong.returncode == 2 and "Did you mean 'android'?" in wrong.stderr
    assert "Example:" in run("--help").stdout


def test_an_unknown_platform(toy_artifact):
    with pytest.raises(UnknownName, match="There is no platform 'symbian'"):
        package(toy_artifact.path, "symbian")


# The Kotlin, compiled once: the toy's package, one of names that are no names, and the library of
# each pipeline.

PIPELINES = {
    "segmentation": {},
    "speech": {"tokenizer": "tokenizer.json"},
    "captions": {"tokenizer": "tokenizer.json"},
    "video": {},
    "pose": {},
}


def awkward(artifact):
    """The artifact with words of Kotlin, of the code around, and of comments for names."""
    (entry,) = artifact.manifest.methods
    (image,), (logits,) = entry.inputs, entry.outputs
    meaning = 'ends */ and /* begins [a link], "quotes" and $dollars'
    inputs = [
        replace(image, name=name, meaning=meaning) for name in ("in", "answer", "a_b", "aB", "fun", "loaded")
    ]
    outputs = [replace(logits, name=name, meaning=meaning) for name in ("class", "0", "to_string")]
    again = replace(inputs[0], sample=OutputOf("when", "class"))
    methods = (
        replace(entry, name="when", inputs=inputs, outputs=outputs),
        replace(entry, name="close", inputs=[again, inputs[1]], outputs=outputs),
    )
    return changed(
        artifact, methods=methods, model=replace(artifact.manifest.model, name="list", summary=meaning)
    )


def write(artifact, kind, folder, on_demand=False):
    manifest = artifact.manifest
    pipeline = kind if kind in PIPELINES else None
    named = (
        changed(artifact, model=replace(manifest.model, name=f"tried-{kind}"), prepare=PIPELINES[kind])
        if pipeline
        else artifact
    )
    android.write(
        Request(named, f"com.example.{kind}", pipeline, calls_of(named), "1.5.1", (), on_demand),
        folder / kind,
    )
    return folder / kind


@pytest.fixture(scope="module")
def compiled(toy_artifact, toy_package, tmp_path_factory):
    """The folder of the classes of all these packages and of the checks, and the folder of the
    packages.
    """
    folder = tmp_path_factory.mktemp("compiled")
    projects = [
        toy_package.path,
        *(write(toy_artifact, kind, folder) for kind in PIPELINES),
        write(awkward(toy_artifact), "awkward", folder),
    ]
    projects.append(write(toy_artifact, "fetched", folder, on_demand=True))
    checks = folder / "Checks.kt"
    checks.write_text(CHECKS.read_text().replace("{{ id }}", "com.example.toy"))
    compile_projects(projects, folder / "classes", checks)
    return folder / "classes", folder


@pytest.mark.toolchain
def test_every_package_compiles(compiled):
    classes, folder = compiled
    for kind, name in {
        **{k: f"Tried{k.capitalize()}" for k in PIPELINES},
        "toy": "Toy",
        "fetched": "Toy",
        "awkward": "ListModel",
    }.items():
        assert (classes / "com/example" / kind / f"{name}.class").is_file() and (
            classes / "com/example" / kind / "sample/MainActivity.class"
        ).is_file()
    source = (folder / "awkward/library/src/main/kotlin/com/example/awkward/ListModel.kt").read_text()
    assert (
        "fun when_(in_: FloatTensor, answer_: FloatTensor, aB: FloatTensor, aB_: FloatTensor, fun_:"
        " FloatTensor, loaded_: FloatTensor): WhenOutputs" in source
    )
    assert "fun close_(answer_: FloatTensor, when_: WhenOutputs): CloseOutputs" in source


@pytest.fixture(scope="module")
def said(compiled, toy_package, tmp_path_factory):
    """What the checks in Kotlin observed."""
    assets = toy_package.path / "library/src/main/assets"
    return json.loads(
        run_java(compiled[0], "com.example.toy.ChecksKt", assets, "toy", tmp_path_factory.mktemp("app"))
    )


@pytest.mark.toolchain
def test_tensors_are_checked_before_the_runtime_sees_them(said):
    refusals = said["refusals"]
    assert refusals.pop("right") == "nothing"
    assert refusals.pop("answer").startswith(
        "IllegalStateException: 'logits' of 'step' came as int32 [1], not as float32"
    )
    assert all(message.startswith("IllegalArgumentException: ") for message in refusals.values())
    assert {name: message.partition(": ")[2] for name, message in refusals.items()} == {
        "count": "'step' takes 3 tensors (image, tokens, position); 1 were given.",
        "type": "'tokens' of 'step' must be int64, not int32.",
        "rank": "'image' of 'step' must have 2 dimensions [batch, 3], not [3].",
        "size": "'image' of 'step' must have size 3 in dimension 1, not 4; its shape is [batch, 3].",
        "bound": "'image' of 'step' has batch = 5 in dimension 0; this program takes 1 to 4.",
        "unequal": "'tokens' of 'step' has batch = 1, but 'image' has 2: they must be equal.",
        "value": "'tokens' of 'step' holds 10; it takes 0 to 9.",
        "negative": "'tokens' of 'step' holds -1; it takes 0 to 9.",
        "last": "'position' of 'step' holds 8, the first of 3 tokens; the last may be at 9.",
        "name": "There is no method 'stop'. There are: step.",
    }


@pytest.mark.toolchain
def test_the_program_is_copied_once_and_checked(said):
    stored = said["storage"]
    assert stored["equal"] and stored["same"] and stored["opened"] == 1
    assert (
        "is damaged where it came from: 1000 bytes" in stored["cut"]
        and "is damaged where it came from: 3000000 bytes" in stored["changed"]
        and "There is no room" in stored["full"]
    )
    assert stored["left"] == [stored["name"]], (
        "of an earlier version, and of copies that failed, nothing stays"
    )


@pytest.mark.toolchain
def test_one_call_at_a_time_until_it_is_closed(said, toy_artifact):
    loaded = said["loaded"]
    assert loaded["at once"] == 1 and loaded["cancelled"] and loaded["calls"] >= 1
    assert loaded["closed during a call"] == 0 and loaded["answered"] == 1 and loaded["closed"] == 1
    assert loaded["after"] == "IllegalStateException: This model was closed."
    assert loaded["file"] == [f"{toy_artifact.manifest.files['toy.pte'].sha256}.pte"]


@pytest.mark.toolchain
def test_a_program_is_fetched_once_and_only_the_right_one_is_taken(said, toy_artifact):
    fetched, program = said["fetched"], toy_artifact.manifest.files["toy.pte"]
    assert len(fetched["refused"]) == 2 and all(
        "toy.pte is damaged where it came from: 13 bytes" in message for message in fetched["refused"]
    )
    assert fetched["answers"] == [1, 1, 1] and fetched["asked"] == ["toy.pte"] * 3, (
        "twice in vain, once for good; later no network is needed"
    )
    assert fetched["sizes"] == [program.size_bytes] and fetched["file"] == [f"{program.sha256}.pte"]


def test_a_package_on_demand_has_the_program_for_its_test_only(toy_artifact, tmp_path):
    made = package(toy_artifact.path, "android", tmp_path / "app", allow_random=True, on_demand=True)
    (program,) = made.path.rglob("*.pte")
    assert program.relative_to(made.path).as_posix() == "library/src/androidTest/assets/toy.pte"
    facts = json.loads((made.path / "library/src/main/assets/models/toy/manifest.json").read_text())
    assert facts["files"]["toy.pte"] == vars(toy_artifact.manifest.files["toy.pte"]), (
        "what is fetched is held against this"
    )
    assert json.loads((made.path / RECORD).read_text())["on_demand"] and damaged(made.path) == []
    assert "android.permission.INTERNET" in (made.path / "sample/src/main/AndroidManifest.xml").read_text()
    with pytest.raises(UsageError, match="--on-demand is for a platform whose packages can fetch"):
        package(toy_artifact.path, "ios", tmp_path / "ios", allow_random=True, on_demand=True)


@pytest.mark.toolchain
def test_bitmaps_are_read_as_they_are(said):
    assert said["pixels"] == {"read": True, "back": True}


def jar(classes, folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in (classes / folder).rglob("*.class"):
            archive.write(file, file.relative_to(classes))
    return path


@pytest.mark.toolchain
def test_an_aar_of_compiled_classes(compiled, toy_artifact, tmp_path):
    classes = jar(compiled[0], "com/example/toy", tmp_path / "classes.jar")
    made = package(
        toy_artifact.path, "android", tmp_path / "toy", "com.example.toy", classes=classes, allow_random=True
    )
    with zipfile.ZipFile(made.files[0]) as aar:
        assert made.files[0].name == "toy.aar" and set(aar.namelist()) == {
            "AndroidManifest.xml",
            "R.txt",
            "classes.jar",
            "proguard.txt",
            "META-INF/com/android/build/gradle/aar-metadata.properties",
            "assets/models/toy/manifest.json",
            "assets/models/toy/toy.pte",
        }
        assert (
            'package="com.example.toy"' in aar.read("AndroidManifest.xml").decode()
            and aar.read("classes.jar") == classes.read_bytes()
        )
        assert (
            aar.read("assets/models/toy/toy.pte") == toy_artifact.program_path.read_bytes()
            and "org.pytorch.executorch" in aar.read("proguard.txt").decode()
        )


def test_what_an_aar_cannot_be_made_of(toy_artifact, tmp_path):
    def refused(match, classes):
        with pytest.raises(UsageError, match=match):
            package(
                toy_artifact.path,
                "android",
                tmp_path / "toy",
                "com.example.toy",
                classes=classes,
                allow_random=True,
            )
        assert not (tmp_path / "toy").exists() and not (tmp_path / "toy.aar").exists()

    refused("There is no jar", tmp_path / "none.jar")
    (tmp_path / "text.jar").write_text("no jar")
    refused("is no jar", tmp_path / "text.jar")
    for name, files in {
        "other": ["com/example/other/Toy.class"],
        "fat": ["com/example/toy/Toy.class", "android/app/Activity.class"],
    }.items():
        with zipfile.ZipFile(tmp_path / f"{name}.jar", "w") as archive:
            for file in files:
                archive.writestr(file, b"")
    refused("has no com/example/toy/Toy.class: it was not compiled from this package", tmp_path / "other.jar")
    refused("holds android/app/Activity.class, which an app has from elsewhere", tmp_path / "fat.jar")
