"""The server path on a toy that writes: one capture for both targets, state held outside, a package
that guards itself.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from conftest import TOY_TEXT

import edgeexport
from edgeexport.artifact.folder import record
from edgeexport.artifact.pt2 import read_libraries
from edgeexport.errors import ArtifactError, CheckFailed, UsageError
from edgeexport.runtime.cpu_isa import cpu_flags

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def artifacts(text_both):
    return text_both


@pytest.fixture(scope="module")
def server(artifacts):
    return edgeexport.open(artifacts[1].path)


@pytest.fixture
def copy(artifacts, tmp_path):
    """A copy of the server artifact, to damage."""
    return Path(shutil.copytree(artifacts[1].path, tmp_path / "server"))


def about(program, seed=1):
    return program["encode"](torch.randn(1, 256, 32, generator=torch.Generator().manual_seed(seed)))


def prefill(program, tokens, position, *crossed):
    return program["prefill"](torch.tensor([tokens]), torch.tensor([position]), *crossed)[0]


def step(program, token, position, *crossed):
    return program["decode_step"](torch.tensor([[token]]), torch.tensor([position]), *crossed)[0]


def test_both_targets_come_of_one_capture_and_say_the_same(artifacts, server):
    edge, package = (a.manifest for a in artifacts)
    assert (
        edge.weights.sha256 == package.weights.sha256
        and edge.target == "xnnpack"
        and package.target == "aoti"
    )
    assert edge.files["golden.safetensors"] == package.files["golden.safetensors"]
    program = edgeexport.open(artifacts[0].path)
    for each in (program, server):
        prefill(each, [3, 1, 4], 0, *about(each))
    torch.testing.assert_close(
        step(program, 1, 3, *about(program)), step(server, 1, 3, *about(server)), atol=1e-5, rtol=0
    )


def test_every_check_of_a_package_ran_and_the_manifest_says_how_it_was_made(artifacts):
    manifest = artifacts[1].manifest
    assert {f.check for f in manifest.findings} == {
        "loads",
        "cpu_isa",
        "numerics",
        "dynamic_bounds",
        "state",
        "package_size",
    }
    settings = manifest.recipe.settings
    assert (
        settings["cpu_isa"]["name"] == "x86-64-v3"
        and settings["device"] == "cpu"
        and "avx2" in settings["cpu_isa"]["flags"]
    )
    assert all(m.compiled.compile_s > 0 and m.delegation is None for m in manifest.methods)


def test_conversations_on_one_program_do_not_disturb_each_other(server):
    first, second = server.session(), server.session()
    one, other = about(server, 1), about(server, 2)
    alone = server.session()
    prefill(alone, [3, 1, 4], 0, *one)
    wanted = step(alone, 1, 3, *one)
    prefill(first, [3, 1, 4], 0, *one)
    prefill(second, [9, 9], 0, *other)
    step(second, 7, 2, *other)
    assert torch.equal(step(first, 1, 3, *one), wanted)
    assert first.engine is second.engine, "weights and code are loaded once"


def test_a_pte_holds_one_conversation(artifacts):
    with pytest.raises(UsageError, match="open it again"):
        edgeexport.open(artifacts[0].path).session()


def test_a_prompt_that_would_end_behind_the_cache_is_refused(server):
    """In the library it is an index out of range in a parallel loop, which ends the process."""
    with pytest.raises(
        edgeexport.EdgeExportError, match="holds 10, the first of 3 tokens; the last may be at 11"
    ):
        prefill(server, [1, 2, 3], 10, *about(server))
    prefill(server, [1, 2], 10, *about(server))


PLAIN = """
import sys, torch
from torch.export.pt2_archive._package import load_pt2
model = load_pt2(sys.argv[1], load_weights_from_disk=sys.argv[2] == "weights").aoti_runners["encode"]
x = torch.randn(*map(int, sys.argv[3].split(","))).to(getattr(torch, sys.argv[4]))
try:
    print("answered", [list(t.shape) for t in model(x)])
except RuntimeError as error:
    print("refused", str(error).splitlines()[0])
"""


@pytest.mark.parametrize(
    ("weights", "shape", "dtype", "said"),
    [
        ("weights", "1,256,32", "float32", r"answered \[\[2, 256, 16\], \[2, 16, 256\]\]"),
        ("weights", "1,256,32", "float64", "refused .*dtype"),
        ("weights", "1,255,32", "float32", "refused .*unmatched dim value at 1"),
        ("weights", "2,256,32", "float32", "refused .*dim value at 0"),
        ("none", "1,256,32", "float32", "refused .*weights of this package are not loaded"),
    ],
)
@pytest.mark.long
def test_plain_torch_is_refused_by_the_library_itself(artifacts, weights, shape, dtype, said):
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        PLAIN,
        str(artifacts[1].program_path),
        weights,
        shape,
        dtype,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert re.search(said, done.stdout), done.stdout + done.stderr


def test_a_size_above_the_greatest_is_refused_by_the_library_itself(artifacts, server):
    from torch.export.pt2_archive._package import load_pt2

    run = load_pt2(str(artifacts[1].program_path), load_weights_from_disk=True).aoti_runners["prefill"]
    state = server.session().state_of("prefill")
    run(torch.zeros(1, 12, dtype=torch.int64), torch.tensor([0]), *about(server), *state)
    with pytest.raises(RuntimeError, match="too large at 1, expected to be <= 12"):
        run(torch.zeros(1, 13, dtype=torch.int64), torch.tensor([0]), *about(server), *state)


def test_loops_are_parallel_at_batch_1_too():
    """With an example of two and two threads Inductor itself makes nothing parallel but the
    batch.
    """
    from torch._inductor.utils import fresh_cache, run_and_get_code

    from edgeexport.compiler.server_compilation import _any_batch

    def parallel_loops():
        x = torch.randn(2, 64, 1024)
        torch._dynamo.mark_dynamic(x, 0)
        torch.compiler.reset()
        with fresh_cache():
            (code,) = run_and_get_code(torch.compile(lambda x: x.transpose(1, 2).contiguous() * 2.0), x)[1]
        return re.findall(r"#pragma omp for(?: collapse\(2\))?", code)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert parallel_loops() == ["#pragma omp for"]
        with _any_batch():
            assert parallel_loops() == ["#pragma omp for collapse(2)"]
        assert parallel_loops() == ["#pragma omp for"]
    finally:
        torch.set_num_threads(before)
        torch.compiler.reset()


def test_attention_of_a_text_decoder_stays_as_it_is_written():
    """Inductor itself makes another of it, which copies all keys at every call."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    from edgeexport.compiler.recipes.aoti import STATE
    from edgeexport.modeling.text_decoding import attend

    def rewritten(options):
        query, keys, values = torch.randn(2, 3, 16), torch.randn(2, 64, 16), torch.randn(2, 16, 64)
        torch.compiler.reset()
        counters.clear()
        with fresh_cache(), torch.no_grad():
            compiled = torch.compile(lambda *tensors: attend(*tensors, heads=2), options=options)
            torch.testing.assert_close(
                compiled(query, keys, values), attend(query, keys, values, heads=2), atol=1e-5, rtol=0
            )
        return counters["inductor"]["fuse_attention"]

    try:
        assert rewritten({}) == 1
        assert rewritten(STATE) == 0
    finally:
        torch.compiler.reset()


def test_only_programs_with_state_are_compiled_as_text_decoders(artifacts):
    from edgeexport.artifact.exported_programs import load_programs
    from edgeexport.catalog import recipe

    programs = load_programs(artifacts[1].path / "programs.pt2")
    settings = {
        name: bool(recipe("aoti", "fp32", {})._for_state(program)) for name, program in programs.items()
    }
    assert settings == {"encode": False, "prefill": True, "decode_step": True}


@pytest.fixture(scope="module")
def run_package(tmp_path_factory):
    """The C++ example, compiled as its CMakeLists.txt says."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed: apt install cmake")
    folder = tmp_path_factory.mktemp("cpp")
    configure = [
        "cmake",
        "-S",
        str(HERE.parent / "examples" / "cpp"),
        "-B",
        str(folder),
        f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}",
    ]
    for command in (configure, ["cmake", "--build", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder / "run_package"


def call(program, package, method, tensors, folder, around=()):
    torch.save(list(tensors), folder / "in.pt")
    done = subprocess.run(
        [*around, program, package, method, folder / "in.pt", folder / "out.pt"],
        capture_output=True,
        text=True,
    )
    return torch.load(folder / "out.pt") if done.returncode == 0 else done.stderr


@pytest.mark.toolchain
def test_cpp_runs_a_method_with_state(run_package, artifacts, server, tmp_path):
    crossed, tokens, start = about(server), torch.tensor([[3, 1, 4]]), torch.tensor([0])
    conversation = server.session()
    (wanted,) = conversation["prefill"](tokens, start, *crossed)
    state = server.session().state_of("prefill")
    logits, *after = call(
        run_package, artifacts[1].program_path, "prefill", (tokens, start, *crossed, *state), tmp_path
    )
    torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=0)
    for got, want in zip(after[-2:], conversation.state_of("prefill")):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


@pytest.mark.toolchain
def test_cpp_runs_a_method_from_an_archive_of_all_artifacts(run_package, artifacts, server, tmp_path):
    x = torch.randn(1, 256, 32)
    answers = call(
        run_package,
        edgeexport.bundle([a.path for a in artifacts], tmp_path / "all.pt2"),
        "encode",
        (x,),
        tmp_path,
    )
    for got, want in zip(answers, server["encode"](x)):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


@pytest.mark.toolchain
def test_cpp_is_refused_by_the_library_itself(run_package, artifacts, tmp_path):
    said = call(
        run_package, artifacts[1].program_path, "encode", (torch.randn(1, 256, 32).double(),), tmp_path
    )
    assert "unmatched dtype" in said


@pytest.mark.toolchain
def test_a_package_for_v3_runs_on_a_cpu_without_avx512(run_package, artifacts, server, tmp_path):
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("qemu-x86_64 is not installed: apt install qemu-user")
    x = torch.randn(1, 256, 32)
    answers = call(
        run_package,
        artifacts[1].program_path,
        "encode",
        (x,),
        tmp_path,
        around=("qemu-x86_64", "-cpu", "Haswell-v4"),
    )
    assert not isinstance(answers, str), answers
    for got, want in zip(answers, server["encode"](x)):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


@pytest.mark.toolchain
def test_wide_instructions_are_found(tmp_path):
    """The check can fail: a library that the compiler was told to write for v4."""
    source = tmp_path / "wide.c"
    source.write_text("void add(float *a, const float *b) { for (int i = 0; i < 4096; ++i) a[i] += b[i]; }")
    for level, wide in (("v3", False), ("v4", True)):
        library, package = tmp_path / f"{level}.so", tmp_path / f"{level}.pt2"
        subprocess.run(
            [
                "g++",
                "-x",
                "c++",
                "-O3",
                f"-march=x86-64-{level}",
                "-mprefer-vector-width=512",
                "-shared",
                "-fPIC",
                source,
                "-o",
                library,
            ],
            check=True,
        )
        with zipfile.ZipFile(package, "w") as archive:
            archive.write(library, f"{level}/data/aotinductor/add/add.so")
        (facts,) = read_libraries(package)
        assert facts.method == "add" and (facts.wide_instructions > 0) == wide and facts.instructions > 10


def edit(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_package_for_a_wider_cpu_is_refused_before_it_is_loaded(copy):
    edit(
        copy, lambda m: m["recipe"]["settings"]["cpu_isa"].update(name="x86-64-v9", flags=["avx2", "avx9000"])
    )
    with pytest.raises(ArtifactError, match="built for x86-64-v9, and this CPU has no avx9000"):
        about(edgeexport.open(copy))


def test_a_package_that_is_no_archive_is_a_finding(copy):
    package = copy / "toy-text.pt2"
    package.write_bytes(package.read_bytes()[:100_000])
    edit(copy, lambda m: m["files"].update({"toy-text.pt2": vars(record(package))}))
    finding, *_ = edgeexport.check(copy)
    assert not finding.passed and finding.check == "loads" and "cannot load" in finding.message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cpu_isa": "aarch64"}, "cannot be built on .*Build on an aarch64 machine"),
        ({"cpu_isa": "x86-64-v9"}, "no CPU instruction set level"),
        ({"device": "tpu"}, "There is no device 'tpu'"),
        ({"target": "xnnpack", "cpu_isa": "native"}, "xnnpack has no setting --cpu-isa"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        edgeexport.build(TOY_TEXT, weights="random", out=tmp_path / "out", **{"target": "aoti", **options})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused(tmp_path):
    with pytest.raises(UsageError, match="sees no GPU"):
        edgeexport.build(TOY_TEXT, target="aoti", device="cuda", weights="random", out=tmp_path / "out")


def test_a_missing_compiler_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UsageError, match=r"'no-such-compiler' is not there.*apt install g\+\+"):
        edgeexport.build(TOY_TEXT, target="aoti", weights="random", out=tmp_path / "out")


@pytest.mark.skipif("avx512f" in cpu_flags(), reason="this CPU has AVX-512")
def test_a_level_that_this_cpu_lacks_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no avx512"):
        edgeexport.build(TOY_TEXT, target="aoti", cpu_isa="x86-64-v4", weights="random", out=tmp_path / "out")


def test_two_targets_need_two_folders_and_differ(tmp_path):
    from edgeexport.build import build_targets

    with pytest.raises(UsageError, match="given twice"):
        build_targets(TOY_TEXT, targets=("aoti", "aoti"), weights="random")
    command = [
        sys.executable,
        "-m",
        "edgeexport",
        "build",
        TOY_TEXT,
        "--target",
        "aoti",
        "--target",
        "xnnpack",
        "--out",
        str(tmp_path / "x"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "2 targets need 2 folders" in done.stderr


@pytest.mark.long
def test_a_failed_check_keeps_the_package_aside(tmp_path):
    wrong = f"{HERE / 'toy.py'}:wrong"
    with pytest.raises(CheckFailed, match="numerics"):
        edgeexport.build(wrong, target="aoti", weights="random", batch="1:2", out=tmp_path / "out")
    assert (tmp_path / "out.failed").is_dir() and not (tmp_path / "out").exists()
