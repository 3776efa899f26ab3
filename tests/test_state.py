"""Programs with state: a cache that methods share, that nothing else overwrites, and that a new
text does not see.
"""

import pytest
import torch
import toy_text
from conftest import TOY_TEXT

import edgeexport
from edgeexport.artifact.manifest import CaseSetup
from edgeexport.errors import CheckFailed, InputError
from edgeexport.pipelines.captions import generate


@pytest.fixture(scope="module")
def artifact(text_both):
    return text_both[0]


@pytest.fixture(scope="module")
def program(artifact):
    return edgeexport.open(artifact.path)


def test_every_position_and_prompt_length_says_what_the_text_at_once_says(artifact):
    cases = {m.name: [c.sizes for c in m.cases] for m in artifact.manifest.methods}
    assert cases["prefill"] == [{"tokens": n} for n in (1, 2, 3, 7, 12)]
    assert cases["decode_step"] == [{"position": n} for n in (1, 2, 3, 7, 11)]
    steps = artifact.methods["decode_step"]
    assert steps.cases[2].setup == CaseSetup("prefill", "structured", {"tokens": 3}, 20)
    assert steps.dims[0].verified == (1, 11)
    assert all(f.passed for f in artifact.manifest.findings)


def test_the_manifest_names_the_state_and_the_methods_share_it(artifact):
    state = {m.name: [(s.name, s.shape) for s in m.state] for m in artifact.manifest.methods}
    assert state["encode"] == [] and state["prefill"] == state["decode_step"] == [
        ("cache.keys", (2, 12, 16)),
        ("cache.values", (2, 16, 12)),
    ]


def test_the_state_holds_and_a_new_text_starts_clean(artifact):
    (found,) = [f for f in artifact.manifest.findings if f.check == "state"]
    assert (
        found.method == "decode_step"
        and found.details == {"held": True, "clean": True}
        and "while encode runs" in found.measured
    )


@pytest.mark.long
def test_a_cache_planned_with_scratch_memory_is_found_out(tmp_path, monkeypatch):
    """The failure that the check is for: the encoder's scratch memory lies where the cache is."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass

    from edgeexport.compiler import edge_lowering

    together = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False), run_reinplace_pass=True
    )
    monkeypatch.setattr(edge_lowering, "_memory_settings", lambda: together)
    with pytest.raises(CheckFailed, match="state decode_step|numerics decode_step"):
        edgeexport.build(TOY_TEXT, weights="random", out=tmp_path / "text")


@pytest.mark.parametrize(
    ("method", "tokens", "position", "said"),
    [
        ("decode_step", [5], 12, "'position'.*holds 12; it takes 0 to 11"),
        ("decode_step", [5], -1, "holds -1"),
        ("decode_step", [4000], 3, "'token'.*holds 4000; it takes 0 to 3999"),
        ("prefill", [5] * 13, 0, "tokens = 13.*takes 1 to 12"),
    ],
)
def test_what_would_read_or_write_elsewhere_is_refused(program, method, tokens, position, said):
    about = program["encode"](torch.zeros(1, 256, 32))
    with pytest.raises(InputError, match=said):
        program[method](torch.tensor([tokens]), torch.tensor([position]), *about)


def test_a_prompt_may_be_given_in_parts_and_a_text_taken_back(program):
    about = program["encode"](torch.randn(1, 256, 32, generator=torch.Generator().manual_seed(1)))
    whole = program["prefill"](torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([0]), *about)[0]
    program["prefill"](torch.tensor([[3, 1]]), torch.tensor([0]), *about)
    parts = program["prefill"](torch.tensor([[4, 1, 5]]), torch.tensor([2]), *about)[0]
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=0)
    program["decode_step"](torch.tensor([[9]]), torch.tensor([5]), *about)
    again = program["decode_step"](torch.tensor([[5]]), torch.tensor([4]), *about)[0]
    torch.testing.assert_close(again, whole, atol=1e-5, rtol=0)


def test_greedy_tokens_are_those_of_the_original(program):
    loaded = toy_text.MODEL.load(edgeexport.Weights("random", 0))[0]
    x = torch.randn(1, 256, 32, generator=torch.Generator().manual_seed(2))
    original, wanted = toy_text.Original(loaded), [1]
    with torch.no_grad():
        keys, values = toy_text.Encoder(loaded)(x)
        while len(wanted) < 9:
            wanted.append(int(original(torch.tensor([wanted]), torch.tensor([0]), keys, values).argmax()))
    assert generate(program, [1], 8, program["encode"](x)) == wanted[1:]
