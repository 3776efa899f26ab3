"""MViT: what stock lowering does to it, and what the recipe makes of it.

A small one of torchvision's own class.
"""

import pytest
import torch

from edgeexport.compiler.capture import capture
from edgeexport.compiler.recipes.xnnpack import recipe
from edgeexport.compiler.rewrite import run_passes
from edgeexport.method import Dim, Input, Method, Output
from edgeexport.modeling.torchvision_operators import ensure_torchvision
from edgeexport.modeling.weights import randomize
from edgeexport.samplers import Normal

ensure_torchvision()
from torchvision.models.video.mvit import MSBlockConfig, MViT  # noqa: E402


def small(version):
    """Two blocks with pooling in the second, all else as in mvit_v1_b or mvit_v2_s."""
    blocks = [
        MSBlockConfig(1, 16, 16 if version == 1 else 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
        MSBlockConfig(2, 16 if version == 1 else 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1]),
    ]
    options = (
        dict(residual_pool=True, residual_with_cls_embed=False, rel_pos_embed=True, proj_after_attn=True)
        if version == 2
        else (
            dict(
                residual_pool=False, residual_with_cls_embed=True, rel_pos_embed=False, proj_after_attn=False
            )
        )
    )
    module = MViT((32, 32), 4, blocks, num_classes=7, **options).eval()
    randomize(module, 0)
    return module


def method(module, batch):
    return Method(
        "classify",
        module,
        (Input("clip", ("batch", 3, 4, 32, 32), sample=Normal()),),
        (Output("logits"),),
        (batch,),
    )


def emitted(module, batch, path):
    """Our recipe's program and its delegation."""
    made = recipe("fp32")
    program, _ = run_passes(capture(method(module, batch)).program, made.passes)
    return made.emit({"classify": program}, path)["classify"]


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2])
def test_dynamic_batch_is_right_and_delegates_like_a_static_one(version, tmp_path):
    from executorch.runtime import Runtime

    module = small(version)
    dynamic = emitted(module, Dim("batch", 1, 16), tmp_path / "dynamic.pte")
    static = emitted(module, Dim("batch", 2, 2), tmp_path / "static.pte")
    assert dynamic.delegates <= static.delegates + 2
    loaded = Runtime.get().load_program(tmp_path / "dynamic.pte").load_method("classify")
    for batch in (1, 2, 3, 7, 13, 16):
        clip = torch.randn(batch, 3, 4, 32, 32)
        with torch.no_grad():
            assert torch.allclose(loaded.execute([clip])[0], module(clip), atol=1e-4), batch
    with pytest.raises(RuntimeError):
        loaded.execute([torch.randn(17, 3, 4, 32, 32)])


@pytest.mark.long
def test_without_the_rewrites_the_file_does_not_load(tmp_path):
    """Stock: max_pool3d is not in the runtime."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    program = torch.export.export(small(1), (torch.randn(1, 3, 4, 32, 32),))
    stock = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    (tmp_path / "stock.pte").write_bytes(stock.buffer)
    with pytest.raises(RuntimeError):
        Runtime.get().load_program(tmp_path / "stock.pte").load_method("forward")


def test_without_dynamic_shapes_another_batch_is_refused():
    """The tutorial's first step: captured at batch 1, the program takes batch 1."""
    program = torch.export.export(small(1), (torch.randn(1, 3, 4, 32, 32),))
    with pytest.raises(Exception, match="Expected|expected|Guard failed"):
        program.module()(torch.randn(2, 3, 4, 32, 32))
