"""Removes assertions about dtype, device and layout that capture has already settled."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, PassResult, aten


def strip_assertions(program: ExportedProgram) -> PassResult:
    """`_assert_tensor_metadata(x, ...)` → nothing.

    `x.to(dtype)` leaves one behind. It keeps alive whatever it looks at: a
    position embedding that nothing else uses stays in the file for it.
    Assertions about sizes are kept: they are what refuses a wrong input.
    """
    editor = Editor(program)
    for node in editor.nodes(aten._assert_tensor_metadata.default):
        editor.graph.erase_node(node)
        editor.changes += 1
    return editor.finish()
