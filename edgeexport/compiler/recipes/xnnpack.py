"""ExecuTorch on XNNPACK: CPUs of phones, boards and laptops."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import torch
from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS, generic_node_configs
from executorch.backends.xnnpack.partition.config.gemm_configs import LinearConfig
from executorch.backends.xnnpack.partition.config.generic_node_configs import CatConfig, SliceCopyConfig
from executorch.backends.xnnpack.partition.config.xnnpack_config import XNNPartitionerConfig
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.utils.quant_utils import is_dequant, is_per_channel, tag_as_implicit_q_dq
from torch.export import ExportedProgram

from edgeexport.compiler.edge_lowering import EdgeRecipe
from edgeexport.compiler.passes.conv3d_as_conv2d import conv3d_as_conv2d
from edgeexport.compiler.passes.conv_transpose_as_linear import conv_transpose_as_linear
from edgeexport.compiler.passes.decompose_attention import decompose_attention
from edgeexport.compiler.passes.decompose_layer_norm import decompose_layer_norm, decompose_layer_norm_apart
from edgeexport.compiler.passes.decompose_upsample import decompose_upsample
from edgeexport.compiler.passes.fold_constants import fold_constants
from edgeexport.compiler.passes.fold_scale import fold_scale
from edgeexport.compiler.passes.fold_transposes import fold_transposes
from edgeexport.compiler.passes.infer_view_dimension import InferViewDimension
from edgeexport.compiler.passes.lower_rank import MAX_RANK, lower_rank
from edgeexport.compiler.passes.matmul_as_bmm import matmul_as_bmm
from edgeexport.compiler.passes.max_pool3d_as_max_pool2d import max_pool3d_as_max_pool2d
from edgeexport.compiler.passes.merge_layout import merge_layout
from edgeexport.compiler.passes.merge_pointwise import merge_pointwise
from edgeexport.compiler.passes.merge_slices import merge_slices
from edgeexport.compiler.passes.quantize_once import quantize_once
from edgeexport.compiler.passes.scatter_as_cat import scatter_as_cat
from edgeexport.compiler.passes.select_as_slice import select_as_slice
from edgeexport.compiler.passes.simplify_layout import simplify_layout
from edgeexport.compiler.passes.slice_early import slice_early
from edgeexport.compiler.passes.softmax_over_last import softmax_over_last
from edgeexport.compiler.passes.split_as_slice import split_as_slice
from edgeexport.compiler.passes.split_linear import split_linear
from edgeexport.compiler.passes.strip_assertions import strip_assertions
from edgeexport.compiler.passes.upsample_late import upsample_late
from edgeexport.compiler.passes.vector_bmm_as_left import vector_bmm_as_left
from edgeexport.compiler.rewrite import Node
from edgeexport.compiler.xnnpack_graphs import rewritten_graphs

TARGET = {
    "summary": "ExecuTorch .pte on XNNPACK (Arm and x86 CPUs)",
    "format": "pte",
    "precisions": ("fp32", "int8", "dynamic_int8", "weight_int8", "static_int8", "embedding_int8"),
    "runtimes": ("executorch", "native"),
    "checks": (
        "loads",
        "operators",
        "numerics",
        "quality",
        "dynamic_bounds",
        "state",
        "memory",
        "delegation",
        "model_schema",
        "runners",
        "peak_memory",
        "instructions",
        "board",
    ),
    "settings": (
        {
            "name": "etrecord",
            "help": (
                "keep an ETRecord of each method, for ExecuTorch's Inspector; it holds the method's"
                " weights once more."
            ),
        },
    ),
    # As they lie in the file, and as XNNPACK packs them.
    "weight_copies": 2,
    "keeps_programs": False,
    "describes_itself": True,
    "refuses_values": True,
    "serves": False,
}

PASSES = (
    # clean up what capture left
    strip_assertions,
    simplify_layout,
    fold_constants,
    merge_pointwise,
    upsample_late,
    # use operators that XNNPACK has
    conv3d_as_conv2d,
    max_pool3d_as_max_pool2d,
    conv_transpose_as_linear,
    scatter_as_cat,
    select_as_slice,
    split_as_slice,
    decompose_upsample,
    split_linear,
    decompose_attention,
    softmax_over_last,
    matmul_as_bmm,
    fold_scale,
    vector_bmm_as_left,
    lower_rank,
    decompose_layer_norm,
    # drop work that nobody reads, and merge the layout changes that all this added
    slice_early,
    merge_slices,
    simplify_layout,
    merge_layout,
)

QUANTIZABLE = {decompose_layer_norm: decompose_layer_norm_apart}
"""What runs in place of a pass where weights are going to be quantized."""


def recipe(precision: str, etrecord: bool = False) -> EdgeRecipe:
    """The recipe for one of TARGET's precisions; with `etrecord` it keeps an ETRecord of each
    method beside the program.
    """
    return EdgeRecipe(
        name="xnnpack",
        precision=precision,
        passes=PASSES if precision == "fp32" else tuple(QUANTIZABLE.get(p, p) for p in PASSES),
        partitioner=DynamicPartitioner,
        edge_passes=lambda: (InferViewDimension(),),
        around=lambda: rewritten_graphs(fold_transposes, quantize_once),
        etrecord=etrecord,
    )


class TensorLimits(XNNPartitionerConfig):
    """Mixed into every rule: refuses what XNNPACK's tensors cannot be, and upstream's rules do not
    ask.

    More than six dimensions; and an unsqueeze of two dynamic sizes, which is a reshape that would
    have to infer both.
    """

    def check_constraints(self, node: Node, ep: ExportedProgram) -> bool:
        values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
        rank = max((v.dim() for v in values if isinstance(v, torch.Tensor)), default=0)
        if rank > MAX_RANK:
            generic_node_configs.why(
                node, f"XNNPACK has tensors of up to {MAX_RANK} dimensions, this has {rank}"
            )
            return False
        if (
            "unsqueeze" in self.target_name
            and sum(isinstance(s, torch.SymInt) for s in node.meta["val"].shape) > 1
        ):
            generic_node_configs.why(
                node, "XNNPACK's reshape infers one dimension, this has two dynamic ones"
            )
            return False
        return super().check_constraints(node, ep)


class StaticDimensionSliceConfig(SliceCopyConfig):
    """Takes a slice of a dynamic tensor where the sliced dimension is static.

    Upstream refuses every dynamic tensor; XNNPACK's slice takes the other dimensions as they come.
    """

    def check_constraints(self, node: Node, ep: ExportedProgram) -> bool:
        if super().check_constraints(node, ep):
            return True
        step = node.args[4] if len(node.args) > 4 else 1
        if step != 1 or not self.check_common_constraints(node, ep):
            return False
        before, after = (n.meta["val"].shape[node.args[1]] for n in (node.args[0], node))
        return isinstance(before, int) and isinstance(after, int) and after > 0


class RepeatedCatConfig(CatConfig):
    """Takes a concatenation of a tensor with itself.

    Upstream counts different tensors, and finds one.
    """

    def check_constraints(self, node: Node, ep: ExportedProgram) -> bool:
        return super().check_constraints(node, ep) or (
            self.check_common_constraints(node, ep) and len(node.args[0]) > 1
        )


class WeightOnlyLinearConfig(LinearConfig):
    """Takes a linear map of float32 activations with int8 weights, without a bias.

    Upstream asks that both are quantized, or neither. XNNPACK has this kernel, which is right
    without a bias (see precisions/weight_int8.py).
    """

    def get_deps(self, node: Node, ep: ExportedProgram) -> tuple[bool, list[torch.fx.Node]]:
        source, weight, *bias = node.args
        if bias or is_dequant(source) or not is_dequant(weight) or not is_per_channel(weight):
            return super().get_deps(node, ep)
        tag_as_implicit_q_dq(weight)
        return True, [weight, *weight.all_input_nodes]


_RELAXED = {
    SliceCopyConfig: StaticDimensionSliceConfig,
    CatConfig: RepeatedCatConfig,
    LinearConfig: WeightOnlyLinearConfig,
}


class DynamicPartitioner(XnnpackPartitioner):
    """XNNPACK's partitioner with relaxed slices and concatenations, limits on tensors, its reasons
    kept (`reasons`, by node name), and less tracing.
    """

    def __init__(self):
        rules = [_RELAXED.get(c, c) for c in ALL_PARTITIONER_CONFIGS]
        super().__init__(configs=[type(rule.__name__, (TensorLimits, rule), {}) for rule in rules])
        self.reasons: dict[str, str] = {}

    def partition(self, exported_program):
        with _recorded(self.reasons):
            return super().partition(exported_program)

    def transform_for_pre_decomposition(self, exported_program):
        """Drops the provenance chains that every later trace would copy, node by node (a tenth of
        lowering).
        """
        for node in exported_program.graph.nodes:
            node.meta.pop("from_node", None)
        return super().transform_for_pre_decomposition(exported_program)

    def ops_to_not_decompose(self, ep):
        """Without the per-node filter when no node needs it: with one, ExecuTorch traces the
        program twice more.
        """
        operators, keep = super().ops_to_not_decompose(ep)
        candidates = [n for n in ep.graph.nodes if n.op == "call_function" and n.target in operators]
        return operators, None if keep is None or all(keep(n) for n in candidates) else keep


@contextlib.contextmanager
def _recorded(reasons: dict[str, str]) -> Iterator[None]:
    """Keep what the partitioner's rules log about nodes they refuse; ExecuTorch offers it nowhere
    else.
    """
    rules = "executorch.backends.xnnpack.partition.config"
    loggers = [
        logging.getLogger(f"{rules}.{part}")
        for part in ("generic_node_configs", "gemm_configs", "node_configs")
    ]
    before = [(log.level, log.propagate) for log in loggers]
    handler = _ReasonHandler(reasons)
    for log in loggers:
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
        log.propagate = False
    try:
        yield
    finally:
        for log, (level, propagate) in zip(loggers, before):
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = propagate


class _ReasonHandler(logging.Handler):
    """Reads node and reason off the WhyNoPartition object that is logged."""

    def __init__(self, reasons: dict[str, str]):
        super().__init__(logging.DEBUG)
        self._reasons = reasons

    def emit(self, record: logging.LogRecord) -> None:
        node, reason = getattr(record.msg, "node", None), getattr(record.msg, "reason", None)
        if node is not None and reason:
            self._reasons[node.name] = str(reason).rstrip(".")
