"""Programs against a runtime library of someone's app: react-native-executorch's for Android has
what the real models need, and lacks what nobody has.
"""

import json
import sys
from pathlib import Path

import pytest
import torch
from command_line import edgeexport
from conftest import LONGEST_FIRST
from executorch.exir import to_edge

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from phone_tools import npm_package  # noqa: E402


@pytest.fixture(scope="session")
def android():
    return npm_package("react-native-executorch", "0.9.3") / "third-party" / "android" / "libs" / "executorch"


@pytest.mark.parametrize("name", LONGEST_FIRST)
def test_the_real_models_find_all_that_they_need(name, android, request):
    found = json.loads(
        edgeexport("operators", request.getfixturevalue(name), "--runtime", android, "--json").stdout
    )
    assert "XnnpackBackend" in found["backends"]
    assert {verdict["machine"]: verdict["missing"] for verdict in found["runtime"]} == {
        "aarch64": [],
        "x86_64": [],
    }


def test_an_operator_that_is_not_there_is_named(android, tmp_path):
    with torch.library._scoped_library("own", "DEF") as library:
        library.define("add(Tensor x) -> Tensor")
        library.define("add.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
        library.impl("add", lambda x: x + 1, "CompositeExplicitAutograd")
        library.impl("add.out", lambda x, out: out.copy_(x + 1), "CompositeExplicitAutograd")

        class Own(torch.nn.Module):
            def forward(self, x):
                return torch.ops.own.add(x) * x

        program = to_edge(torch.export.export(Own(), (torch.zeros(2, 3),))).to_executorch()
    (tmp_path / "own.pte").write_bytes(program.buffer)
    done = edgeexport(
        "operators",
        tmp_path / "own.pte",
        "--runtime",
        android / "arm64-v8a" / "libexecutorch.so",
        "--json",
        check=False,
    )
    assert done.returncode == 1 and "for aarch64 lacks own::add.out." in done.stderr
    found = json.loads(done.stdout)
    assert [operator["name"] for operator in found["operators"]] == [
        "aten::mul.out",
        "own::add.out",
    ] and found["runtime"][0]["missing"] == ["own::add.out"]
