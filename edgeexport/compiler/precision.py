"""What a precision is: rules that say which layers compute with which kind of numbers; and what a
kind is: a rewrite of one layer.

Kinds come last, on the graph that is lowered: quantized any earlier, weights are folded back to
float and rewrites lose their matches. They write what they mean with the operators of
`quantized_decomposed`, so that the program itself, run by PyTorch, says what the emitted file must
say.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  it registers quantized_decomposed
from torch.export import ExportedProgram

from edgeexport.artifact.manifest import PassReport
from edgeexport.compiler.calibration import Calibration, Ranges, ranges_of
from edgeexport.compiler.rewrite import Editor, Node, Pass, PassResult, run_passes
from edgeexport.errors import UnknownName, UsageError
from edgeexport.method import INT8, Model, Quality, Rule, Tolerance

FLOAT = "fp32"
"""The kind that leaves a layer as it is."""

ROUNDED = Tolerance(
    5e-4,
    80.0,
    "the runtime sums in another order; a value between two whole numbers may round to either, so that it may"
    " be as far from what PyTorch says of the same graph as that is from eager",
)
"""From what PyTorch says of the same quantized graph."""

UNJUDGED = Quality(20.0, "the model's file declares none: a tenth of the answer's size")
"""From eager, of a model that does not say what it may lose."""


@dataclass(frozen=True)
class Kind:
    """Numbers that a layer may compute with.

    `operators` are those it is for. `fits(editor, node)` says whether it can be had for one of
    them, and `quantize(editor, node, ranges)` writes it so, with the ranges of the nodes that
    `observed` names, where it needs any. `before` are passes that make layers fit.
    """

    name: str
    operators: tuple[Callable, ...]
    fits: Callable[[Editor, Node], bool]
    quantize: Callable[[Editor, Node, Ranges], None]
    observed: Callable[[Node], tuple[Node, ...]] | None = None
    before: tuple[Pass, ...] = ()


@cache
def kinds() -> dict[str, Kind]:
    """Every kind by name, each from its file in precisions/."""
    files = sorted((Path(__file__).parent / "precisions").glob("[a-z]*.py"))
    return {
        path.stem: importlib.import_module(f"edgeexport.compiler.precisions.{path.stem}").KIND
        for path in files
    }


@dataclass(frozen=True)
class Precision:
    """The numbers that programs compute with: the last of `rules` that matches a layer gives its
    kind; where none does it stays float32.

    `tolerance` is how far an emitted program may be from what PyTorch says of the same quantized
    graph, None where it is the model's own, from eager; `quality` is how far from eager then.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    tolerance: Tolerance | None = None
    quality: Quality | None = None

    @property
    def calibrates(self) -> bool:
        """Whether any layer may have ranges that calibration finds."""
        return any(kinds()[rule.kind].observed is not None for rule in self.rules)

    @property
    def changes(self) -> bool:
        """Whether any layer may become something else than float32."""
        return any(rule.kind != FLOAT for rule in self.rules)

    def require_change(self, reports: Iterable[Sequence[PassReport]], model: str) -> None:
        """Raise UsageError where no layer of any method became another kind."""
        named = {rule.kind for rule in self.rules}
        if not any(report.changes for each in reports for report in each if report.name in named):
            raise UsageError(
                f"No layer of {model} takes {self.name}: its program would be that of float32. Build with"
                " --precision fp32, or another that `edgeexport models` lists."
            )

    def apply(
        self, method: str, program: ExportedProgram, calibration: Calibration | None
    ) -> tuple[ExportedProgram, list[PassReport]]:
        """A method's program in this precision, and what each pass did: one for each kind that the
        rules name for the method. Without `calibration` for one that calibrates nothing. Raises
        RewriteError, UsageError.
        """
        named = dict.fromkeys(rule.kind for rule in self.rules if fnmatchcase(method, rule.methods))
        chosen = [kinds()[name] for name in named if name != FLOAT]
        passes = [p for kind in chosen for p in (*kind.before, self._pass(kind, method, calibration))]
        return run_passes(program, passes)

    def _pass(self, kind: Kind, method: str, calibration: Calibration | None) -> Pass:
        def quantize(program: ExportedProgram) -> PassResult:
            editor = Editor(program)
            layers = [
                node
                for node in editor.nodes(*kind.operators)
                if kind_of(self.rules, method, node) == kind.name and kind.fits(editor, node)
            ]
            ranges: Ranges = {}
            if layers and kind.observed is not None and calibration is not None:
                watched = {observed.name for node in layers for observed in kind.observed(node)}
                ranges = ranges_of(program, watched, calibration.calls(method))
            for node in layers:
                kind.quantize(editor, node, ranges)
            return editor.finish()

        quantize.__name__ = kind.name
        return quantize


def precision(name: str, model: Model) -> Precision:
    """A precision by name: that of the model's file, or `int8`, or one kind for all layers that it
    fits. Raises UnknownName.
    """
    ruled = {"int8": INT8, **model.precisions}
    names = {**dict.fromkeys(kinds()), **ruled}
    if name not in names:
        raise UnknownName("precision", name, names)
    if name == FLOAT:
        return Precision(name)
    rules = ruled.get(name) or (Rule(name),)
    for rule in rules:
        if rule.kind not in kinds():
            raise UnknownName(
                f"kind of numbers (in the precision {name} of {model.name})", rule.kind, kinds()
            )
    return Precision(name, rules, ROUNDED, model.quality.get(name) or UNJUDGED)


def recorded(name: str, rules: Sequence[Rule]) -> Precision:
    """The precision that a manifest keeps."""
    return Precision(name, tuple(rules))


def kind_of(rules: Sequence[Rule], method: str, node: Node) -> str:
    """The name of the kind that the rules give a layer."""
    operator, module = node.target.__name__.partition(".")[0], module_of(node)
    matching = (
        rule.kind
        for rule in reversed(rules)
        if fnmatchcase(method, rule.methods)
        and fnmatchcase(operator, rule.operators)
        and fnmatchcase(module, rule.modules)
    )
    return next(matching, FLOAT)


def module_of(node: Node) -> str:
    """The path of the module that a node comes from, in the module that was captured."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((path for path, _ in reversed(stack.values())), "")
