"""What would bring an operator into the XNNPACK delegate, or why it may stay outside: by the
operator's name without namespace and overload.
"""

from __future__ import annotations

from edgeexport.artifact.pte import plain_name

NONE_KNOWN = "no known fix"

_NORM = (
    "the pass decompose_layer_norm writes it with operators that XNNPACK has: keep that pass, and normalise"
    " the last dimension only, in float32"
)
_PRODUCT = (
    "make the weight a parameter of a Linear (AddmmToLinearTransform of executorch.backends.transforms): the"
    " portable kernel is up to 100 times slower"
)
_MASK = "compute the mask before the model, or as float arithmetic that is added: XNNPACK has no booleans"
_STATE = "none needed: it writes the state in place, as much as a call adds to it"
_LAYOUT = "write it as one reshape in which at most one size is dynamic (XNNPACK's reshape infers one)"
_EXPAND = "let the next operator broadcast instead (XNNPACK has no expand), or expand before the model"
_SIZE = "none needed: it computes a size or a view, not values"
_INTEGER = (
    "none needed on positions and other integers, which XNNPACK does not compute and which cost little; on"
    " floats, cure the reason"
)
_SLICE = (
    "slice with step 1 along a static dimension (the passes select_as_slice and split_as_slice do so for"
    " floats)"
)

FIXES = {
    "native_layer_norm": _NORM,
    "native_group_norm": (
        "write it as means over the last two dimensions of a 4-D tensor, which XNNPACK takes"
    ),
    "mm": _PRODUCT,
    "addmm": _PRODUCT,
    "linear": _PRODUCT,
    "bmm": "give it three dimensions and float operands (the pass matmul_as_bmm does so)",
    "mean": (
        "average over the last two dimensions of a 4-D tensor with keepdim=True, or write it as a Linear"
        " whose weights are 1/N"
    ),
    "_softmax": "take it over the last dimension (the pass softmax_over_last does so)",
    "upsample_nearest2d": (
        "scale by whole factors (the pass decompose_upsample then writes it as concatenations)"
    ),
    "max_pool2d_with_indices": "do not return the indices, and pool without ceil_mode",
    "constant_pad_nd": "pad by fixed sizes that are not negative, or before the model",
    "embedding": "none needed: it copies rows out of a table, which costs little",
    "index_put": _STATE,
    "copy": _STATE,
    "slice_scatter": _STATE,
    "where": _MASK,
    "le": _MASK,
    "lt": _MASK,
    "ge": _MASK,
    "gt": _MASK,
    "eq": _MASK,
    "ne": _MASK,
    "logical_not": _MASK,
    "logical_and": _MASK,
    "any": _MASK,
    "scalar_tensor": _MASK,
    "full_like": _MASK,
    "view_copy": _LAYOUT,
    "unsqueeze_copy": _LAYOUT,
    "squeeze_copy": _LAYOUT,
    "expand_copy": _EXPAND,
    "repeat": _EXPAND,
    "slice_copy": _SLICE,
    "select_copy": _SLICE,
    "split_with_sizes_copy": _SLICE,
    "_to_copy": (
        "keep integers and booleans out of the middle of the model: XNNPACK converts between floats only"
    ),
    "_to_dim_order_copy": (
        "keep integers and booleans out of the middle of the model: XNNPACK converts between floats only"
    ),
    "et_view": _SIZE,
    "sym_size": _SIZE,
    "et_copy_index": _SIZE,
    "add": _INTEGER,
    "sub": _INTEGER,
    "mul": _INTEGER,
    "floordiv": _SIZE,
    "mod": _SIZE,
}


def fix_of(operator: str) -> str:
    """What would fix it; NONE_KNOWN, where nothing is known to."""
    return FIXES.get(plain_name(operator), NONE_KNOWN)
