"""Capture: strict then non-strict, declared ranges kept, activations not baked in; and the guard at
15.
"""

import pytest
import torch
from torch import nn

from edgeexport.compiler.capture import capture
from edgeexport.errors import CaptureError
from edgeexport.method import Dim, Input, Method, Output
from edgeexport.samplers import Normal


def method(module, shape=("batch", 8), dims=(Dim("batch", 1, 16),)):
    return Method("forward", module.eval(), (Input("x", shape, sample=Normal()),), (Output("y"),), dims)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(x)


def test_strict_is_tried_first():
    found = capture(method(Plain()))
    assert found.mode == "strict" and found.strict_failure is None


class NeedsNonStrict(Plain):
    def forward(self, x):
        with open("/dev/null") as file:  # dynamo does not trace files
            file.read()
        return self.linear(x)


def test_non_strict_is_next_and_the_reason_is_kept():
    found = capture(method(NeedsNonStrict()))
    assert found.mode == "non-strict" and found.strict_failure


def test_both_failing_is_an_error_with_both_reasons():
    class DataDependent(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(CaptureError, match="Strict: .*Non-strict: "):
        capture(method(DataDependent()))


def test_a_specialised_dimension_is_refused():
    class Fixed(nn.Module):
        def forward(self, x):
            return x.reshape(2, 8) * 2

    with pytest.raises(CaptureError, match="batch"):
        capture(method(Fixed()))


class Predictor:
    """As predictors of tutorials are: not a module, with image features kept on the side."""

    def __init__(self):
        self.model = Plain()
        self.features = torch.randn(64, 8, 16)

    def predict(self, x):
        return self.model(x) + self.features.mean((0, 2))[:4]


def test_baked_in_features_are_refused():
    predictor = Predictor()

    class Bound(nn.Module):
        def forward(self, x):
            return predictor.predict(x)

    class Owner(nn.Module):
        """Registering the model cures the weights, not the features."""

        def __init__(self):
            super().__init__()
            self.model = predictor.model

        def forward(self, x):
            return self.model(x) + predictor.features.mean((0, 2))[:4]

    for module in (Bound(), Owner()):
        with pytest.raises(CaptureError, match="neither a parameter nor a buffer.*make it an input"):
            capture(method(module))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return self.conv(x).relu()


def planned_batch(max_batch, guarded):
    """The batch that ExecuTorch plans memory for, lowered as stock does or within
    no_backend_guards.
    """
    import contextlib

    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from edgeexport.compiler.backend_guards import no_backend_guards

    with no_backend_guards() if guarded else contextlib.nullcontext():
        dims = ({0: torch.export.Dim("b", min=1, max=max_batch)},)
        program = torch.export.export(Convolution(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=dims)
        edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        size = next(n for n in edge.exported_program().graph.nodes if n.name == "x").meta["val"].shape[0]
        planned = int(size.node.shape_env.bound_sympy(size.node.expr).upper)
        return planned, edge.to_executorch().buffer


@pytest.mark.parametrize("max_batch", [16, 17, 64])
def test_a_dynamic_batch_is_not_cut_to_15(max_batch, tmp_path):
    from executorch.runtime import Runtime

    assert planned_batch(max_batch, guarded=False)[0] == 15, (
        "the failure that the guard defeats; gone upstream?"
    )
    planned, program = planned_batch(max_batch, guarded=True)
    assert planned == max_batch
    (tmp_path / "p.pte").write_bytes(program)
    loaded = Runtime.get().load_program(tmp_path / "p.pte").load_method("forward")
    for batch in (1, 15, max_batch):
        assert loaded.execute([torch.randn(batch, 3, 8, 8)])[0].shape[0] == batch
    with pytest.raises(RuntimeError):
        loaded.execute([torch.randn(max_batch + 1, 3, 8, 8)])


class Many(torch.nn.Module):
    """As decoders and Ultralytics' models are called: one named tensor, then as many as are
    given.
    """

    def forward(self, first, *more, **settings):
        return first + sum(more) if more else first * 2.0


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_module_that_takes_any_number_of_tensors_is_captured_with_a_dynamic_batch(count):
    inputs = tuple(Input(f"x{i}", ("batch", 3)) for i in range(count))
    captured = capture(Method("add", Many(), inputs, (Output("y"),), (Dim("batch", 1, 9),)))
    tensors = [torch.randn(5, 3) for _ in range(count)]
    torch.testing.assert_close(captured.program.module()(*tensors), Many()(*tensors))
