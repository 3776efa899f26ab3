"""Packages for Linux boards: what is in them, what is refused; built, tested, installed and called
from an app here, and run as arm64 in qemu.
"""

import importlib.util
import json
import shutil
import subprocess
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch
from phone_tools import kept

import edgeexport
from edgeexport.artifact.signatures import calls_of
from edgeexport.errors import UsageError
from edgeexport.runtime import runner
from edgeexport.runtime.boards import board
from edgeexport.samplers import OutputOf
from edgeexport.ship.mobile import RECORD, Request, damaged, package
from edgeexport.ship.mobile.platforms import cpp

APP = Path(__file__).parent / "cpp_app"
EXECUTORCH = Path(importlib.util.find_spec("executorch").submodule_search_locations[0])
NATIVE = [name for name in ("g++", "cmake") if shutil.which(name) is None]
FOREIGN = [tool for tool in ("qemu-aarch64", "aarch64-linux-gnu-g++") if shutil.which(tool) is None]
built_here = pytest.mark.skipif(
    bool(NATIVE),
    reason=f"not installed: {', '.join(NATIVE)} (apt install g++ nlohmann-json3-dev; pip install cmake)",
)

QUIET = "-Wall -Wextra -Wshadow -Werror"


@pytest.fixture(scope="module")
def text_artifact(text_both):
    """The toy that writes: whole numbers in bounds, a dynamic size, and state that two methods
    share.
    """
    return text_both[0]


@pytest.fixture(scope="module")
def text_package(text_artifact, tmp_path_factory):
    return package(
        text_artifact.path,
        "cpp",
        tmp_path_factory.mktemp("packages") / "text",
        "edgeexport_toy",
        allow_random=True,
    )


def test_what_is_in_a_package(text_artifact, text_package):
    folder = text_package.path
    assert damaged(folder) == [] and text_package.app_id == "edgeexport_toy"
    record = json.loads((folder / RECORD).read_text())
    assert set(record["files"]) | {RECORD} == {
        str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()
    }
    program = text_artifact.manifest.program
    assert (folder / "share" / program).read_bytes() == text_artifact.program_path.read_bytes()
    header = (folder / "include/edgeexport_toy/toy.hpp").read_text()
    assert (
        "PrefillOutputs prefill(View<int64_t> tokens, View<int64_t> position, const EncodeOutputs& encode);"
        in header
    )
    assert "share the program's state (prefill, decode_step)" in header
    version = metadata.version("executorch")
    assert (
        f"find_package(executorch {version} REQUIRED COMPONENTS runtime kernels_optimized threadpool"
        " backend_xnnpack)" in (folder / "CMakeLists.txt").read_text()
    )
    readme, notice = ((folder / name).read_text() for name in ("README.md", "NOTICE"))
    assert (
        "Functions on tensors only" in readme
        and f"ExecuTorch's C++ runtime for Linux {version}" in notice
        and all(note in readme for note in text_package.notes)
    )
    for file in folder.rglob("*"):
        if file.suffix not in (".bin", ".pte") and file.is_file():
            text = file.read_text()
            assert (
                str(Path.cwd()) not in text
                and str(Path.home()) not in text
                and "{%" not in text
                and "{{ " not in text
            ), file


def test_the_components_of_the_runtime(text_artifact, monkeypatch):
    monkeypatch.setattr(cpp, "COMPONENTS_OF_OPERATORS", {"aten": "kernels_aten"})
    assert cpp.components(text_artifact.program_path)[-2:] == ["backend_xnnpack", "kernels_aten"]


def test_names_of_packages():
    assert (
        cpp.app_id(None, "whisper-tiny.en") == "edgeexport_whisper_tiny_en"
        and cpp.app_id("sam2", "x") == "sam2"
    )
    assert cpp.app_id(None, "3d--x") == "edgeexport_3d_x" and cpp.app_id(None, "class") == "edgeexport_class"


@pytest.mark.parametrize(
    "given", ["com.example.sam2", "2d", "a__b", "_a", "a_", "namespace", "std", "linux", "größe", "a\n", ""]
)
def test_what_is_no_name_of_a_package(given):
    with pytest.raises(UsageError, match="is no name of a CMake package"):
        cpp.app_id(given, "toy")


def test_another_version_of_the_runtime_and_the_name_of_the_model(text_artifact, tmp_path):
    made = package(
        text_artifact.path, "cpp", tmp_path / "out", runtime_version="1.6.0-rc1", allow_random=True
    )
    assert made.app_id == "edgeexport_toy_text" and (made.path / "src/toy_text.cpp").is_file()
    assert (
        "find_dependency(executorch 1.6.0 COMPONENTS"
        in (made.path / "cmake/edgeexport_toy_textConfig.cmake.in").read_text()
    )
    assert "pip install executorch==1.6.0-rc1" in (made.path / "README.md").read_text()


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def build(source, folder, *settings):
    cmake = runner._cmake()
    run(cmake, "-S", source, "-B", folder, f"-DCMAKE_CXX_FLAGS={QUIET}", *settings)
    run(cmake, "--build", folder)
    return folder


@pytest.fixture(scope="module")
def built(text_package, tmp_path_factory):
    """The package, built and installed for this machine: the folders of both."""
    folder = tmp_path_factory.mktemp("cpp")
    build(text_package.path, folder / "build", f"-DCMAKE_PREFIX_PATH={EXECUTORCH}")
    run(runner._cmake(), "--install", folder / "build", "--prefix", folder / "prefix")
    return folder / "build", folder / "prefix"


def golden(build):
    ctest = Path(runner._cmake()).with_name("ctest")
    return [line for line in run(ctest, "--test-dir", build, "--verbose").splitlines() if ": ok " in line]


@pytest.mark.toolchain
@built_here
def test_every_method_says_what_eager_said(built):
    cases = golden(built[0])
    assert (
        len(cases) == 5
        and sum("decode_step: logits" in line for line in cases) == 2
        and sum("encode: " in line for line in cases) == 2
    )


@pytest.mark.toolchain
@built_here
def test_the_golden_test_fails_where_an_answer_is_another(built, text_package, tmp_path):
    copy = Path(shutil.copytree(text_package.path / "golden", tmp_path / "golden"))
    record = json.loads((copy / "golden.json").read_text())
    (file,) = {
        copy / "tensors" / case["outputs"][0]["file"]
        for case in record["cases"]
        if case["method"] == "prefill"
    }
    command = [built[0] / "edgeexport_toy_golden", text_package.path / "share/toy-text.pte", copy]

    def said(content):
        file.write_bytes(content)
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    right = file.read_bytes()
    assert said(right)[0] == 0
    code, text = said(bytes(4) + right[4:])
    assert code == 1 and "FAILED  prefill: logits" in text
    code, text = said(b"\x00\x00\xc0\x7f" + right[4:])  # no number
    assert code == 1 and "FAILED  prefill: logits is off by inf" in text
    code, text = said(right[:-4])
    assert code == 1 and "has not the bytes of its shape" in text


@pytest.mark.toolchain
@built_here
def test_what_was_installed_runs_where_it_is_copied(built, text_package, tmp_path):
    stage = Path(shutil.copytree(built[1], tmp_path / "board"))
    said = run(stage / "bin/edgeexport_toy_example", stage / "share/edgeexport_toy/toy-text.pte")
    assert "logits [1, 4000]:" in said and "decode_step" in said
    loaded = run("ldd", stage / "bin/edgeexport_toy_example")
    assert str(stage.resolve()) in loaded and str(EXECUTORCH) not in loaded, (
        "the libraries beside it come first"
    )
    done = subprocess.run(
        [stage / "bin/edgeexport_toy_example", tmp_path / "none.pte"], capture_output=True, text=True
    )
    assert done.returncode == 1 and "none.pte cannot be read: No such file" in done.stderr


@pytest.fixture(scope="module")
def app(built, tmp_path_factory):
    """What an app that finds the package observed, by name; `logits` are of the steps."""
    folder = tmp_path_factory.mktemp("app")
    build(APP, folder / "build", f"-DCMAKE_PREFIX_PATH={built[1]};{EXECUTORCH}")
    program = Path((folder / "build/program").read_text())
    content = program.read_bytes()
    (folder / "cut.pte").write_bytes(content[:-100])
    (folder / "changed.pte").write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    (folder / "begun.pte").write_bytes(bytes(64) + content[64:])
    (folder / "folder.pte").mkdir()
    names = ["cut.pte", "changed.pte", "begun.pte", "none.pte", "folder.pte"]
    observed = {"logits": []}
    for line in run(folder / "build/app", program, *names, cwd=folder).splitlines():
        name, _, text = line.partition("\t")
        (
            observed["logits"].append([float(number) for number in text.split()])
            if name == "logits"
            else observed.update({name: text})
        )
    return observed


@pytest.mark.toolchain
@built_here
def test_an_app_gets_what_python_gets_and_the_methods_share_their_state(app, text_artifact):
    program = edgeexport.open(text_artifact.path)
    x = (torch.arange(256 * 32) % 17 - 8).reshape(1, 256, 32) / 8
    about = program["encode"](x)
    program["prefill"](torch.tensor([[2, 7, 1]]), torch.tensor([0]), *about)
    for place, (token, said) in enumerate(zip((3, 1, 4), app["logits"], strict=True), start=3):
        (right,) = program["decode_step"](torch.tensor([[token]]), torch.tensor([place]), *about)
        torch.testing.assert_close(torch.tensor([said]), right, atol=1e-5, rtol=0)


@pytest.mark.toolchain
@built_here
def test_tensors_are_checked_before_the_runtime_sees_them(app):
    wanted = {
        "rank": "'x' of 'encode' must have 3 dimensions [1, 256, 32], not [256, 32].",
        "size": "'x' of 'encode' must have size 32 in dimension 2, not 31; its shape is [1, 256, 32].",
        "less than nothing": (
            "'x' of 'encode' must have size 1 in dimension 0, not -1; its shape is [1, 256, 32]."
        ),
        "count": "'x' of 'encode' has 8191 elements; its shape [1, 256, 32] takes 8192.",
        "null": "'x' of 'encode' has no elements: its pointer is null.",
        "bound": "'tokens' of 'prefill' has tokens = 13 in dimension 1; this program takes 1 to 12.",
        "no tokens": "'tokens' of 'prefill' has tokens = 0 in dimension 1; this program takes 1 to 12.",
        "value": "'tokens' of 'prefill' holds 4000; it takes 0 to 3999.",
        "negative": "'tokens' of 'prefill' holds -1; it takes 0 to 3999.",
        "last": "'position' of 'prefill' holds 10, the first of 3 tokens; the last may be at 11.",
    }
    assert app["right"] == "nothing" and {name: app[name] for name in wanted} == {
        name: f"invalid_argument: {text}" for name, text in wanted.items()
    }


@pytest.mark.toolchain
@built_here
def test_a_program_that_is_damaged_is_an_error(app):
    for name in ("cut.pte", "cut.pte by its size"):
        assert (
            app[name].startswith(
                f"runtime_error: The program {name.split()[0]} is damaged, or is another than this code was"
                " made for: "
            )
            and "bytes, not" in app[name]
        )
    for name in ("changed.pte", "begun.pte"):
        assert "its sha256 is not" in app[name]
    assert (
        app["begun.pte by its size"]
        == "runtime_error: The program begun.pte cannot be loaded: ExecuTorch: Error::InvalidProgram."
    )
    assert app["none.pte"] == "runtime_error: The program none.pte cannot be read: No such file or directory."
    assert app["folder.pte"] == "runtime_error: The program folder.pte cannot be read: Is a directory."


@pytest.mark.toolchain
@built_here
def test_moves_and_turns(app):
    assert (
        app["moved to"] == "nothing"
        and app["moved from"] == "logic_error: This model was moved from."
        and app["wrong of threads"] == "0"
    )


@pytest.mark.toolchain
def test_words_of_cpp_as_names_compile(text_artifact, tmp_path):
    """Only the code that is made of names; the program is not called."""
    if shutil.which("g++") is None:
        pytest.skip("not installed: g++ (apt install g++)")
    entry = text_artifact.manifest.methods[0]
    (image,), (logits, *_) = entry.inputs, entry.outputs
    meaning = 'ends */ and /* begins, "quotes" and a trigraph ??/ and \\'
    types = ("float32", "int64", "int32", "int8", "uint8", "bool", "float64")
    inputs = [
        replace(image, name=name, meaning=meaning, dtype=dtype)
        for name, dtype in zip(("in", "template", "given", "a.given", "std", "NULL", "result_"), types)
    ]
    outputs = [replace(logits, name=name, meaning=meaning) for name in ("class", "0", "given", "View")]
    again = replace(inputs[0], sample=OutputOf("while", "class"))
    methods = (
        replace(entry, name="while", inputs=inputs, outputs=outputs),
        replace(entry, name="Program", inputs=[again, inputs[1]], outputs=outputs),
    )
    manifest = text_artifact.manifest
    facts = replace(manifest, methods=methods, model=replace(manifest.model, name="tensor", summary=meaning))
    artifact = replace(text_artifact, manifest=facts)
    cpp.write(Request(artifact, "edgeexport_program", None, calls_of(artifact), "1.5.1", ()), tmp_path)
    source = (tmp_path / "include/edgeexport_program/program_model.hpp").read_text()
    assert (
        "class TensorModel {" in source
        and "ProgramOutputs Program_(View<int64_t> template_, const WhileOutputs& while_);" in source
    )
    for file in ("src/program_model.cpp", "example/example.cpp"):
        run(
            "g++",
            "-std=c++17",
            "-fsyntax-only",
            *QUIET.split(),
            "-I",
            tmp_path / "include",
            "-I",
            tmp_path / "src",
            tmp_path / file,
        )


@pytest.fixture(scope="module")
def arm64_executorch():
    """The executorch package for arm64, fetched once."""

    def make(folder):
        folder.mkdir()
        try:
            wheel = runner._aarch64_wheel(folder)
        except UsageError as error:
            pytest.skip(str(error))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        shutil.rmtree(folder / "wheel")

    return kept(f"executorch-aarch64-{metadata.version('executorch')}", make) / "executorch"


@pytest.mark.toolchain
@built_here
@pytest.mark.skipif(
    bool(FOREIGN), reason=f"not installed: {', '.join(FOREIGN)} (apt install qemu-user g++-aarch64-linux-gnu)"
)
def test_it_is_built_for_arm64_and_runs_in_emulation(text_package, arm64_executorch, tmp_path):
    toolchain = text_package.path / "cmake/aarch64-linux-gnu.cmake"
    folder = build(
        text_package.path,
        tmp_path / "build",
        f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
        f"-DCMAKE_PREFIX_PATH={arm64_executorch}",
        "-DBUILD_EXAMPLE=OFF",
        "-DCMAKE_BUILD_TYPE=Debug",
    )
    for component in ("board", "test"):
        run(runner._cmake(), "--install", folder, "--prefix", tmp_path / "stage", "--component", component)
    assert len(golden(folder)) == 5, "ctest runs it in qemu"
    device, root = board("raspberry_pi_5").emulation, tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text(device.cpuinfo)
    (root / "lib").symlink_to(runner.AARCH64_LIBRARIES)
    stage = tmp_path / "stage"
    home = stage / "share/edgeexport_toy"
    said = run(
        "qemu-aarch64",
        "-cpu",
        device.cpu,
        "-L",
        root,
        stage / "bin/edgeexport_toy_golden",
        home / "toy-text.pte",
        home / "golden",
    )
    assert said.count("ok ") == 5 and (stage / "lib/libexecutorch_backend_xnnpack.so").is_file()
    assert not (stage / "include").exists() and not list(stage.rglob("*.a"))
