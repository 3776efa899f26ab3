"""Rewrites of an ExportedProgram: what a pass is, the editor it works with, and the conditions
around it.

A pass is a function `(ExportedProgram) -> PassResult` in a file of its own
under `passes/`. It works on the functional ATen graph (after
`run_decompositions({})`), changes the program in place, and reports truthfully
whether it changed anything. `run_passes` holds every pass to the same
conditions: the graph is well formed, the user-visible inputs, outputs and
dynamic ranges are what they were.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from edgeexport.artifact.manifest import PassReport
from edgeexport.compiler.backend_guards import no_backend_guards
from edgeexport.errors import RewriteError, UsageError

aten: Any = torch.ops.aten

if TYPE_CHECKING:

    class Node(torch.fx.Node):
        """A node as passes read it: what its arguments are, the operator says; torch.fx has a union
        of all that there can be.
        """

        args: Any
        kwargs: Any
        target: Any
        users: dict[Node, None]
        all_input_nodes: list[Node]

else:
    Node = torch.fx.Node


@dataclass(frozen=True)
class PassResult:
    """What a pass did: the program, whether it is another one now, and how many places changed."""

    program: ExportedProgram
    modified: bool
    changes: int = 0


Pass = Callable[[ExportedProgram], PassResult]

_WEIGHT = re.compile("(c_)*p_")
"""The names of parameters' placeholders, and of what `Editor.constant` names after them."""


def run_passes(program: ExportedProgram, passes: Sequence[Pass]) -> tuple[ExportedProgram, list[PassReport]]:
    """Run `passes` in order.

    Raises RewriteError that names the pass, and those that ran before it.
    """
    reports: list[PassReport] = []
    for rewrite in passes:
        before = _interface(program)
        try:
            result = rewrite(program)
            _check(result.program, before)
        except UsageError:  # of what the user gave: calibration, for one
            raise
        except Exception as error:
            ran = ", ".join(r.name for r in reports) or "none"
            raise RewriteError(
                f"The pass {rewrite.__name__} failed ({type(error).__name__}: {error}). Passes before it:"
                f" {ran}. Build with --skip-pass {rewrite.__name__} to go on without it."
            ) from error
        program = result.program
        reports.append(PassReport(rewrite.__name__, result.changes))
    return program, reports


def _interface(program: ExportedProgram) -> tuple:
    """What a pass must not change: the order and meta of user inputs and outputs, and the dynamic
    ranges.
    """
    values = {n.name: n.meta.get("val") for n in program.graph.nodes}
    signature = program.graph_signature
    inputs = [(name, str(_meta(values.get(name)))) for name in signature.user_inputs]
    out = next(n for n in program.graph.nodes if n.op == "output")
    outputs = [str(_meta(arg.meta.get("val"))) for arg in out.args[0] if isinstance(arg, Node)]
    return inputs, outputs, str(program.range_constraints)


def _meta(value: Any) -> Any:
    return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else value


def _check(program: ExportedProgram, before: tuple) -> None:
    program.graph.lint()
    program.validate()
    after = _interface(program)
    for what, old, new in zip(("inputs", "outputs", "dynamic ranges"), before, after):
        if old != new:
            raise RewriteError(f"the {what} changed from {old} to {new}")


class Editor:
    """Reads and changes the graph of one ExportedProgram; new nodes carry fake values and the
    provenance of `like`.

    Use: walk `nodes(...)`, build with `call`, `reshape`, `permute`, `constant`, `replace` the
    old node, and `finish()`.
    """

    def __init__(self, program: ExportedProgram):
        self.program = program
        self.graph: Any = program.graph
        self.changes = 0
        self._shared: dict[str, Node] = {}
        signature = program.graph_signature
        mutated = set(signature.buffers_to_mutate.values())
        self._targets = {
            spec.arg.name: spec.target
            for spec in signature.input_specs
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
            and spec.target is not None
            and spec.target not in mutated
        }
        fakes = (
            n.meta["val"]
            for n in self.graph.nodes
            if isinstance(n.meta.get("val"), torch._subclasses.FakeTensor)
        )
        self.fake_mode = next(fakes).fake_mode

    # reading

    def nodes(self, *targets) -> Iterable[Node]:
        """Calls of one of `targets` (of anything, when none is given), in order; the graph may
        change meanwhile.
        """
        calls = [n for n in self.graph.nodes if n.op == "call_function"]
        return (n for n in calls if (not targets or n.target in targets) and not n._erased)

    def value(self, node: Any) -> torch.Tensor | None:
        """The values of a parameter, an unmutated buffer or a lifted constant; None for anything
        else.
        """
        stored = self.stored(node)
        return None if stored is None else stored.detach()

    def known(self, node: Any) -> torch.Tensor:
        """`value` of what has been found to have one."""
        value = self.value(node)
        assert value is not None, f"{node} is not a constant"
        return value

    def stored(self, node: Any) -> torch.Tensor | None:
        """The tensor itself behind a parameter, an unmutated buffer or a lifted constant, which
        other programs may share; else None.
        """
        if not isinstance(node, Node) or node.name not in self._targets:
            return None
        target = self._targets[node.name]
        return self._store_of(target)[target]

    def is_weight(self, node: Any) -> bool:
        """Whether a constant is a parameter of the model, or was made of one: passes name it after
        that. What they make of anything else (a mean, a matrix that resizes) is none, and neither
        is a buffer.
        """
        return self.stored(node) is not None and _WEIGHT.match(node.name) is not None

    def _store_of(self, target: str) -> dict:
        return self.program.state_dict if target in self.program.state_dict else self.program.constants

    # writing

    def constant(self, name: str, tensor: torch.Tensor) -> Node:
        """A new placeholder that holds `tensor` (made contiguous), named after `name`."""
        tensor = tensor.detach().contiguous()
        first = next(n for n in self.graph.nodes if n.op == "placeholder")
        with self.graph.inserting_before(first):
            node = self.graph.placeholder(_fresh(name, self.program))
        node.target = node.name
        node.meta["val"] = self.fake_mode.from_tensor(tensor, static_shapes=True)
        self.program.state_dict[node.name] = torch.nn.Parameter(tensor, requires_grad=False)
        spec = InputSpec(InputKind.PARAMETER, TensorArgument(node.name), node.name)
        self.program.graph_signature.input_specs.insert(0, spec)
        self._targets[node.name] = node.name
        return node

    def shared(self, name: str, make: Callable[[], torch.Tensor]) -> Node:
        """`constant`, made the first time that this editor is asked for this name."""
        if name not in self._shared:
            self._shared[name] = self.constant(name, make())
        return self._shared[name]

    def store(self, node: Node, tensor: torch.Tensor) -> None:
        """Put `tensor`, the same values in another memory format, behind a constant; counts as one
        change.
        """
        target = self._targets[node.name]
        store = self._store_of(target)
        store[target] = (
            torch.nn.Parameter(tensor, requires_grad=False)
            if isinstance(store[target], torch.nn.Parameter)
            else tensor
        )
        node.meta["val"] = self.fake_mode.from_tensor(tensor, static_shapes=True)
        self.changes += 1

    def call(self, target: Callable, *args, like: Node, **kwargs) -> Node:
        """A new call before `like`, with its provenance and a computed fake value."""
        with self.graph.inserting_before(like):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = {
            k: v for k, v in like.meta.items() if k in ("stack_trace", "nn_module_stack", "source_fn_stack")
        }
        fake_args, fake_kwargs = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        # With the Python dispatcher, as in capture: some C++ composites read sizes as ints and
        # would specialise them.
        with self.fake_mode, enable_python_dispatcher(), torch.no_grad(), no_backend_guards():
            node.meta["val"] = target(*fake_args, **fake_kwargs)
        return node

    def reshape(self, node: Node, shape: Sequence[Any], like: Node) -> Node:
        """`node` in another shape. At most one size may be symbolic; it is written as -1."""
        sizes = [-1 if is_symbolic(s) else s for s in shape]
        if sizes.count(-1) > 1:
            raise ValueError(f"more than one symbolic size in {tuple(shape)}")
        return self.call(aten.reshape.default, node, sizes, like=like)

    def permute(self, node: Node, order: Sequence[int], like: Node) -> Node:
        return self.call(aten.permute.default, node, list(order), like=like)

    def replace(self, old: Node, new: Node) -> None:
        """Let the users of `old` use `new`, and erase it; counts as one change.

        Erased here, not left to dead code elimination: that keeps operators that could draw random
        numbers, attention among them.
        """
        old.replace_all_uses_with(new)
        self.graph.erase_node(old)
        self.changes += 1

    def finish(self) -> PassResult:
        """Remove what is dead, constants too, and recompile."""
        if self.changes:
            self.graph.eliminate_dead_code()
            self._drop_unused_constants()
            self.program.graph_module.recompile()
            self._refresh_signature()
        return PassResult(self.program, self.changes > 0, self.changes)

    def _drop_unused_constants(self) -> None:
        """Forget constants that no node uses, so that they are not stored."""
        program = self.program
        placeholders = {n.name: n for n in self.graph.nodes if n.op == "placeholder"}
        unused = {name for name in self._targets if name in placeholders and not placeholders[name].users}
        for name in unused:
            self.graph.erase_node(placeholders[name])
        specs = program.graph_signature.input_specs
        specs[:] = [s for s in specs if s.arg.name not in unused]
        kept = {s.target for s in specs}
        for store in (program.state_dict, program.constants):
            for target in [t for t in store if t not in kept and t in {self._targets[u] for u in unused}]:
                del store[target]
        for name in unused:
            del self._targets[name]

    def _refresh_signature(self) -> None:
        """Point the signature's outputs at the nodes that are returned now."""
        out = next(n for n in self.graph.nodes if n.op == "output")
        for spec, node in zip(self.program.graph_signature.output_specs, out.args[0]):
            if isinstance(node, Node) and isinstance(spec.arg, TensorArgument):
                spec.arg = TensorArgument(node.name)


def _fresh(name: str, program: ExportedProgram) -> str:
    """`name` as an identifier that neither the graph nor the stores use."""
    stem = "c_" + "".join(c if c.isalnum() else "_" for c in name)
    taken = {n.name for n in program.graph.nodes} | set(program.state_dict) | set(program.constants)
    candidates = (stem if i == 0 else f"{stem}_{i}" for i in range(len(taken) + 1))
    return next(c for c in candidates if c not in taken)


def is_symbolic(size: Any) -> bool:
    """Whether a size is known only when the program runs."""
    return isinstance(size, torch.SymInt)


def shape_of(node: Node) -> tuple:
    """The sizes of a node's value; ints, or SymInts where dynamic."""
    return tuple(node.meta["val"].shape)


def same_shape(left: Sequence, right: Sequence) -> bool:
    """Whether two shapes are equal for every value of their symbols; asks without adding a
    guard.
    """
    return len(left) == len(right) and all(_same_size(a, b) for a, b in zip(left, right))


def _same_size(left: Any, right: Any) -> bool:
    if is_symbolic(left) or is_symbolic(right):
        return str(left) == str(right)
    return left == right


def only_user(node: Node) -> Node | None:
    """The single user of a node, or None."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def product(sizes: Iterable) -> Any:
    """The product of sizes, symbolic or not."""
    result = 1
    for size in sizes:
        result = operator.mul(result, size)
    return result
