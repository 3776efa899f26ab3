"""What programs need of a runtime: the list, its YAML, a runtime's size, and runtime libraries that
have or lack what is needed.
"""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import executorch
import pytest
import torch
from executorch.exir import to_edge
from in_process import run_command
from torch import nn

from edgeexport.errors import ArtifactError, UsageError
from edgeexport.runtime.kernel_code import KERNELS, kernel_code_bytes
from edgeexport.runtime.library import Library, read_libraries
from edgeexport.ship.selective_build import hold, needs, runtime_size, write_yaml

LIBRARIES = Path(executorch.__path__[0]) / "lib"

NAMES = r"""
__asm__(".section .rodata\n"
        "names: .asciz \"aten::add.out\"\n .asciz \"aten::sub.outside\"\n .asciz \"custom_aten::mul.out\"\n"
        ".ascii \"XH00\"\nbackend: .asciz \"XnnpackBackend\"\n .ascii \"XH00\"\n .asciz \"OtherBackend\"\n .text\n");
extern "C" __attribute__((visibility("hidden"))) const char names[], backend[];
extern "C" const char* registered(int which) { return which ? names : backend; }
"""  # noqa: E501
COMPILERS = {"x86_64": "g++", "aarch64": "aarch64-linux-gnu-g++"}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Someone else's program: lowered without edgeexport, with an operator that no released runtime
    has.
    """
    with torch.library._scoped_library("edgeexport_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        library.impl("twice.out", lambda x, out: out.copy_(2 * x), "CompositeExplicitAutograd")

        class Twice(nn.Module):
            def forward(self, x):
                return torch.ops.edgeexport_test.twice(x) + 1.0

        edge = to_edge(
            torch.export.export(Twice(), (torch.zeros(2, 3),)),
            constant_methods={"sampling_rate_hz": 16000, "labels": ["a", "b"]},
        )
        path = tmp_path_factory.mktemp("foreign") / "twice.pte"
        path.write_bytes(edge.to_executorch().buffer)
        return path


@pytest.fixture(scope="module", params=COMPILERS)
def library(request, tmp_path_factory):
    """A shared library with names in it, of each architecture that there is a compiler for."""
    compiler = COMPILERS[request.param]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    folder = tmp_path_factory.mktemp("library")
    (folder / "names.cpp").write_text(NAMES)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-nostdlib", "names.cpp", "-o", "libnames.so"],
        cwd=folder,
        check=True,
    )
    return request.param, folder / "libnames.so"


@pytest.mark.toolchain
def test_names_are_whole_strings(library):
    machine, path = library
    found = Library(str(path), path.read_bytes())
    assert found.machine == machine
    names = {"aten::add.out", "aten::sub.out", "aten::mul.out", "XnnpackBackend", "OtherBackend", "Backend"}
    assert found.names(names) == {"aten::add.out", "XnnpackBackend"}, (
        "the longer names are others; what only the code's address tells apart is found by it"
    )


@pytest.mark.toolchain
def test_libraries_in_an_archive_are_held_by_architecture(library, foreign, tmp_path):
    machine, path = library
    with zipfile.ZipFile(tmp_path / "a.aar", "w") as archive:
        archive.write(path, "jni/arm64-v8a/libnames.so")
        archive.write(path, "jni/arm64-v8a/libother.so")
        archive.writestr("classes.jar", b"")
    (verdict,) = hold(needs([foreign]), tmp_path / "a.aar")
    assert (verdict.machine, len(verdict.libraries), verdict.missing) == (
        machine,
        2,
        ("edgeexport_test::twice.out",),
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x02\x01" + bytes(100), "damaged"),
        (b"MZ", "no shared library that is read here"),
        (b"", "no shared library"),
    ],
    ids=["zeros behind the header", "of Windows", "empty"],
)
def test_what_is_no_library_is_refused(content, said, tmp_path):
    (tmp_path / "lib.so").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_libraries(tmp_path / "lib.so")
    with pytest.raises(UsageError, match="has no shared library"):
        read_libraries(Path(zipped(tmp_path / "empty.jar")))


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "")
    return path


def test_the_list_has_calls_dtypes_methods_and_backends(text_both, foreign):
    wanted = needs([text_both[0].path])
    by_name = {operator.name: operator for operator in wanted.operators}
    assert wanted.backends == ("XnnpackBackend",) and by_name.keys() >= {
        "aten::index_put_",
        "aten::embedding.out",
    }
    assert by_name["aten::embedding.out"].dtypes == ("float32", "int64") and set(
        by_name["aten::embedding.out"].methods
    ) == {"decode_step", "prefill"}
    both = needs([text_both[0].path, foreign])
    assert (
        set(both.names) == {*wanted.names, "edgeexport_test::twice.out", "aten::add.out"}
        and len(both.programs) == 2
    )


def test_a_server_package_asks_for_nothing(text_both):
    with pytest.raises(UsageError, match=r"has no \.pte"):
        needs([text_both[1].path])


def test_the_yaml_is_what_executorchs_generators_take(text_both, foreign, tmp_path):
    from executorch.codegen.tools.gen_selected_op_variants import write_selected_op_variants
    from torchgen.selective_build.selector import SelectiveBuilder

    wanted, path = needs([text_both[0].path, foreign]), tmp_path / "selected_operators.yaml"
    write_yaml(wanted, path)
    builder = SelectiveBuilder.from_yaml_path(str(path))
    assert all(
        builder.is_operator_selected(operator.name) for operator in wanted.operators
    ) and not builder.is_operator_selected("aten::mul.out")
    (keys,) = (
        operator.kernel_keys for operator in wanted.operators if operator.name == "aten::embedding.out"
    )
    assert keys and all(key.startswith("v1/6;") for key in keys)
    assert set(builder.et_get_selected_kernels("aten::embedding.out", [*keys, "v1/7;0|7;0"])) == set(keys), (
        "kernels for float64 are left out"
    )
    write_selected_op_variants(str(path), str(tmp_path))
    header = (tmp_path / "selected_op_variants.h").read_text()
    assert '"embedding.out"' in header and "ScalarType::Long" in header
    assert "XnnpackBackend" in path.read_text().splitlines()[0] and str(tmp_path) not in path.read_text()
    with pytest.raises(ArtifactError, match="is there already"):
        write_yaml(wanted, path)
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_yaml(wanted, tmp_path / "nowhere" / "selected_operators.yaml")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "selected_op_variants.h",
        "selected_operators.yaml",
    ]


def test_the_package_of_this_machine_has_what_is_needed(text_both, foreign):
    (verdict,) = hold(needs([text_both[0].path]), LIBRARIES)
    assert verdict.missing == () and verdict.size_bytes > 10e6
    assert hold(needs([foreign]), LIBRARIES)[0].missing == ("edgeexport_test::twice.out",)


@pytest.mark.skipif(
    shutil.which("objdump") is None or not (LIBRARIES / KERNELS[0]).is_file(),
    reason="no binutils, or no package for Linux",
)
def test_the_size_counts_what_kernels_reach(text_both, foreign):
    size = runtime_size(needs([text_both[0].path]))
    assert (
        "libexecutorch_backend_xnnpack.so" in size.library_bytes
        and size.library_bytes.keys() & set(KERNELS) == set()
    )
    assert 50e3 < sum(size.kernel_code_bytes.values()) < 0.2 * sum(size.kernel_library_bytes.values())
    assert size.estimated_bytes < size.everything_bytes
    with pytest.raises(UsageError, match="has no edgeexport_test::twice.out"):
        runtime_size(needs([foreign]))


@pytest.mark.skipif(
    shutil.which("objdump") is None or not (LIBRARIES / KERNELS[0]).is_file(),
    reason="no binutils, or no package for Linux",
)
def test_all_kernels_reach_most_of_their_library_and_more_never_less():
    every = Library("kernels", (LIBRARIES / KERNELS[0]).read_bytes())
    functions = (LIBRARIES.parent / "kernels" / "portable" / "functions.yaml").read_text()
    names = [
        f"aten::{line.removeprefix('- op: ').strip()}"
        for line in functions.splitlines()
        if line.startswith("- op: ")
    ]
    one = kernel_code_bytes(["aten::embedding.out"], LIBRARIES)[KERNELS[0]]
    two = kernel_code_bytes(["aten::embedding.out", "aten::add.out"], LIBRARIES)[KERNELS[0]]
    assert 1e3 < one < two < every.size_bytes
    assert kernel_code_bytes(names, LIBRARIES)[KERNELS[0]] > 0.5 * every.size_bytes, (
        "the rest is data, and the parts of Eigen's BLAS that nothing calls"
    )


def test_the_command(foreign, tmp_path):
    done = run_command("operators", foreign, "--runtime", LIBRARIES, "--yaml", tmp_path / "s.yaml", "--json")
    assert done.returncode == 1 and "lacks edgeexport_test::twice.out" in done.stderr
    found = json.loads(done.stdout)
    assert [o["name"] for o in found["operators"]] == [
        "aten::add.out",
        "edgeexport_test::twice.out",
    ] and found["backends"] == []
    assert (
        found["runtime"][0]["missing"] == ["edgeexport_test::twice.out"] and (tmp_path / "s.yaml").is_file()
    )
    done = run_command("operators", tmp_path / "no.pte")
    assert done.returncode == 2 and "cannot be read" in done.stderr and "Traceback" not in done.stderr


def test_a_foreign_program_is_shown(foreign):
    done = run_command("show", foreign)
    assert done.returncode == 0, done.stderr
    assert (
        "outside: 1 x edgeexport_test::twice.out" in done.stdout
        and "constant sampling_rate_hz: 16000" in done.stdout
    )
