"""The phone's programs on an emulated Raspberry Pi: the same answers, and as many instructions as
ever. `-m emulated` runs all of them.
"""

import shutil

import pytest
from emulated import BOARDS, METHODS, QUICK, emulate, instructions
from reference import INSTRUCTIONS, MODELS, read

MISSING = [tool for tool in ("qemu-aarch64", "aarch64-linux-gnu-g++") if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"not installed: {', '.join(MISSING)} (apt install qemu-user g++-aarch64-linux-gnu)",
    ),
]


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=[] if (name, method) in QUICK else [pytest.mark.slow])
        for name, methods in METHODS.items()
        for method in methods
    ],
)
def test_the_program_answers_the_same_and_takes_as_many_instructions_as_ever(name, method, request):
    findings = emulate(request.getfixturevalue(name), BOARDS[0], method)
    assert [f for f in findings if not f["passed"]] == []
    (same,) = [f["details"] for f in findings if f["check"] == "runners"]
    assert same["max_abs_relative"] <= 1e-5, "float32, by other kernels than this machine's"
    reference = read()["instructions"][BOARDS[0]][f"{MODELS[name]}/{method}"]
    assert instructions(findings) == pytest.approx(reference, rel=INSTRUCTIONS)
