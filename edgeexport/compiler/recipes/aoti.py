"""AOTInductor: servers, compiled C++ in a `.pt2` package."""

from __future__ import annotations

from edgeexport.compiler.passes.channels_last import channels_last
from edgeexport.compiler.passes.contiguous_outputs import contiguous_outputs
from edgeexport.compiler.passes.fold_constants import fold_constants
from edgeexport.compiler.passes.merge_pointwise import merge_pointwise
from edgeexport.compiler.passes.simplify_layout import simplify_layout
from edgeexport.compiler.passes.slice_early import slice_early
from edgeexport.compiler.passes.strip_assertions import strip_assertions
from edgeexport.compiler.server_compilation import ServerRecipe
from edgeexport.errors import UsageError
from edgeexport.runtime.cpu_isa import cpu_isa as level

TARGET = {
    "summary": "AOTInductor .pt2 for servers (x86-64 CPUs, CUDA)",
    "format": "pt2",
    "precisions": ("fp32",),
    "runtimes": ("aoti",),
    "checks": ("loads", "cpu_isa", "numerics", "dynamic_bounds", "state", "package_size", "board"),
    "settings": (
        {
            "name": "cpu_isa",
            "metavar": "LEVEL",
            "help": (
                "instructions that the server's CPU has: x86-64-v3 (from 2013 on), x86-64-v4"
                " (AVX-512), native.  [default: x86-64-v3]"
            ),
        },
        {"name": "device", "metavar": "cpu|cuda", "help": "where it runs.  [default: cpu]"},
    ),
    # As for XNNPACK until it is measured: whether oneDNN packs them depends on the operators.
    "weight_copies": 2,
    "keeps_programs": True,
    "describes_itself": False,
    # An index out of range ends a process with AOTInductor.
    "refuses_values": False,
    "serves": True,
}
DEVICES = ("cpu", "cuda")

# The generic clean-up that the edge has too. Attention stays as it was captured: PyTorch's own
# fused kernel runs it.
PASSES = (
    strip_assertions,
    simplify_layout,
    fold_constants,
    merge_pointwise,
    slice_early,
    simplify_layout,
    channels_last,
    contiguous_outputs,
)

INDUCTOR = {
    "aot_inductor.package": True,
    # Weights lie in the package once, for all methods, and are shared in memory.
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "pickle_weights",
    # Traced sizes start at 2; the lower bound that would be checked is that, not the declared one.
    # The wrapper checks it.
    "aot_inductor.check_lowerbound": False,
}
# What oneDNN's two-dimensional convolutions want. By itself Inductor chooses it where
# torch.backends.mkldnn is on, which it is not while this compiles (backend_guards.py). It takes
# every tensor of four dimensions for an image: with it MViT's attention, which has no such
# convolution, takes a fifth longer.
CPU_IMAGES = {"force_layout_optimization": True}
# The pass (joint_graph.py of torch 2.13) that makes scaled_dot_product_attention of attention
# written out. A text decoder asks of few tokens, whose answer is then computed by the kernel's
# fallback: it copies all keys, transposed and scaled, at every call (Whisper tiny, 1 token: 1.6 of
# 16 ms).
STATE = {"disabled_passes": "PASS_PATTERN_0"}


def recipe(precision: str, cpu_isa: str = "x86-64-v3", device: str = "cpu") -> ServerRecipe:
    """The recipe for one of TARGET's precisions.

    Raises UsageError for a CPU level or a device that is not one.
    """
    if device not in DEVICES:
        raise UsageError(f"There is no device '{device}'. There are: {', '.join(DEVICES)}.")
    return ServerRecipe(
        "aoti",
        precision,
        PASSES,
        device,
        level(cpu_isa),
        INDUCTOR,
        CPU_IMAGES if device == "cpu" else {},
        STATE,
    )
