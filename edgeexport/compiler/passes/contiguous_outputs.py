"""Makes every output contiguous, for targets whose tensors have strides."""

from __future__ import annotations

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from edgeexport.compiler.backend_guards import no_backend_guards
from edgeexport.compiler.rewrite import Editor, PassResult, aten


def contiguous_outputs(program: ExportedProgram) -> PassResult:
    """output → contiguous copy of it, where its strides are others.

    The edge has no strides, so `simplify_layout` drops the copies that a module made for them; a
    package would then return transposed views, and a method that takes them as inputs was compiled
    for contiguous ones. It does not fire on an output that is contiguous, nor on the new value of a
    buffer.
    """
    editor = Editor(program)
    _trace_again(program, editor)
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    (output,) = (n for n in editor.graph.nodes if n.op == "output")
    for kind, node in zip(kinds, list(output.args[0])):
        if kind is OutputKind.USER_OUTPUT and not node.meta["val"].is_contiguous():
            made = editor.call(aten.clone.default, node, like=output, memory_format=torch.contiguous_format)
            output.replace_input_with(node, made)
            editor.changes += 1
    return editor.finish()


def _trace_again(program: ExportedProgram, editor: Editor) -> None:
    """Compute every node's fake value anew: passes keep shapes right, and strides as they were
    before them.
    """
    values = [n.meta["val"] for n in editor.graph.nodes if n.op == "placeholder"]
    # With the Python dispatcher, as in capture: some C++ composites read sizes as ints and would
    # specialise them.
    with torch.no_grad(), no_backend_guards(), enable_python_dispatcher():
        FakeTensorProp(program.graph_module, editor.fake_mode).propagate_dont_convert_inputs(*values)
