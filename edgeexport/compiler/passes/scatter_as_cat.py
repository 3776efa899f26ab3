"""Writes an in-place update of a slice as a concatenation, which delegates have."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, PassResult, aten, is_symbolic, shape_of


def scatter_as_cat(program: ExportedProgram) -> PassResult:
    """slice_scatter(x, y, dim, a, b) → cat([x[:a], y, x[b:]], dim): what `x[:, 1:] += z` becomes
    when functionalized.

    The whole dimension → y. It does not fire on a step, or on a dynamic dimension.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.slice_scatter.default):
        names = ("input", "src", "dim", "start", "end", "step")
        given = (
            {"dim": 0, "start": None, "end": None, "step": 1}
            | dict(zip(names, node.args))
            | dict(node.kwargs)
        )
        shape = shape_of(given["input"])
        dim, size = given["dim"] % len(shape), shape[given["dim"]]
        if is_symbolic(size) or given["step"] != 1:
            continue
        start, end = (
            0 if given["start"] is None else given["start"],
            (size if given["end"] is None else given["end"]),
        )
        if not isinstance(start, int) or not isinstance(end, int):
            continue
        start, end = (max(0, min(size, v + size if v < 0 else v)) for v in (start, end))

        def part(low, high, source=given["input"], dim=dim, node=node):
            return editor.call(aten.slice.Tensor, source, dim, low, high, like=node)

        parts = [given["src"]]
        if start > 0:
            parts.insert(0, part(0, start))
        if end < size:
            parts.append(part(end, size))
        editor.replace(
            node, editor.call(aten.cat.default, parts, dim, like=node) if len(parts) > 1 else parts[0]
        )
    return editor.finish()
