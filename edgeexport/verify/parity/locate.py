"""Where two sides part: a weight that is another, a pass that changes the numbers, or the first
module whose value differs.

Asked in this order, from the files alone: the ExportedPrograms that a server artifact keeps, and
the recipe in the manifest. A weight is found by its bytes; a pass by running the program after
each; what is left is in lowering or in the runtime, and is found by emitting the program once more
with the values of its modules as further outputs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from torch.export.pt2_archive._package import PT2ArchiveReader
from torch.export.pt2_archive.constants import AOTINDUCTOR_DIR, WEIGHTS_DIR
from torch.fx import Node

from edgeexport import catalog
from edgeexport.artifact.cases import GoldenAnswers, case_inputs
from edgeexport.artifact.exported_programs import load_programs
from edgeexport.artifact.folder import PROGRAMS, Artifact
from edgeexport.artifact.manifest import Case, MethodEntry
from edgeexport.artifact.program_state import copied, signature_of, with_examples
from edgeexport.artifact.pte import read_weights
from edgeexport.compiler.precision import recorded
from edgeexport.compiler.rewrite import run_passes
from edgeexport.errors import UsageError
from edgeexport.runtime.program import Program
from edgeexport.verify.compare import Comparison

PROBES = 40
"""Values of modules that are looked at; more outputs than that change what is lowered too much."""


@dataclass(frozen=True)
class Place:
    """Where in the model: what differs, the module by its name in the user's model, and the line of
    source that computes with it.
    """

    method: str
    what: str
    module: str
    source: str

    def __str__(self) -> str:
        return (
            f"{self.method}: {self.what}, in {self.module or 'the model itself'}"
            f" ({self.source or 'its line is not known'})"
        )


def locate(artifact: Artifact, kept: Artifact, method: str) -> tuple[Place, ...]:
    """Where the program of `artifact` first differs from the ExportedProgram of `method` that
    `kept` holds.
    """
    programs = {
        name: with_examples(program, _examples(kept, name))
        for name, program in load_programs(kept.path / PROGRAMS).items()
    }
    recipe = _recipe(artifact)
    weights = tuple(_weights(artifact, recipe, programs))
    if weights:
        return weights
    entry = artifact.methods[method]
    inputs = _inputs(artifact, entry, entry.cases[0])
    return tuple(_passes(recipe, programs[method], method, inputs, artifact)) or tuple(
        _modules(recipe, programs[method], method, inputs, artifact)
    )


def _recipe(artifact: Artifact):
    """The recipe that the manifest names, with its passes and settings."""
    recorded = artifact.manifest.recipe
    settings = recorded.settings
    given = {s.name: settings[s.name] for s in artifact.target.settings if s.name in settings}
    asked = {name: value["name"] if isinstance(value, Mapping) else value for name, value in given.items()}
    recipe = catalog.recipe(recorded.name, recorded.precision, asked)
    return dataclasses.replace(
        recipe, passes=tuple(p for p in recipe.passes if p.__name__ in recorded.passes)
    )


def _rewritten(artifact: Artifact, recipe, method: str, program: ExportedProgram) -> ExportedProgram:
    """A method's program as the recipe lowers it, in the artifact's precision."""
    numbers = recorded(artifact.manifest.precision, artifact.manifest.recipe.rules or ())
    if numbers.calibrates:
        raise UsageError("its layers have ranges that were found at the build, and are not kept apart")
    return numbers.apply(method, run_passes(copied(program), recipe.passes)[0], None)[0]


def _examples(kept: Artifact, method: str) -> tuple[torch.Tensor, ...]:
    """Inputs to trace with, of an inner size of each dimension, as at capture."""
    entry = kept.methods[method]
    sizes = {d.name: min(d.max, max(d.min, 2)) for d in entry.ranges.values()}
    return _inputs(kept, entry, dataclasses.replace(entry.cases[0], sizes=sizes))


def _inputs(artifact: Artifact, entry: MethodEntry, case: Case) -> tuple[torch.Tensor, ...]:
    """The inputs of a method's case."""
    return case_inputs(entry.inputs, case, GoldenAnswers(artifact.golden()))


# weights


def _weights(artifact: Artifact, recipe, programs: Mapping[str, ExportedProgram]) -> Iterator[Place]:
    """Weights that the file holds otherwise than the same recipe makes of the ExportedPrograms."""
    rewritten = {name: _rewritten(artifact, recipe, name, program) for name, program in programs.items()}
    found = _package_weights if artifact.target.format == "pt2" else _pte_weights
    for method, node, what in found(artifact, recipe, rewritten):
        user = next(iter(node.users), node)
        yield Place(method, what, *_source(user))


def _package_weights(
    artifact: Artifact, recipe, rewritten: Mapping[str, ExportedProgram]
) -> Iterator[tuple[str, Node, str]]:
    """Each weight of the package has its name; so it is compared by that."""
    with PT2ArchiveReader(
        str(artifact.program_path)
    ) as archive:  # it asks no checksum, as the runtime does not
        stored: dict[str, torch.Tensor] = {}
        for method, program in rewritten.items():
            index = json.loads(archive.read_string(f"{AOTINDUCTOR_DIR}{method}/weights_config.json"))
            for name, tensor, node in _constants(program):
                entry = index.get(name)
                if entry is None:  # Inductor took it into its code: a bias of a few numbers, say
                    continue
                file, shape, stride, offset = entry
                if file not in stored:
                    stored[file] = torch.load(
                        io.BytesIO(archive.read_bytes(f"{WEIGHTS_DIR}{file}")), weights_only=True
                    )
                held = stored[file].as_strided(shape, stride, offset)
                if held.shape != tensor.shape or not torch.equal(held, tensor):
                    yield (
                        method,
                        node,
                        f"the weight '{name}' is another (max abs {float((held - tensor).abs().max()):.1e})",
                    )


def _pte_weights(
    artifact: Artifact, recipe, rewritten: Mapping[str, ExportedProgram]
) -> Iterator[tuple[str, Node, str]]:
    """A `.pte` names its weights by their bytes; so the recipe emits it once more, and what that
    has and the file lacks is traced back.
    """
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "again.pte"
        recipe.emit({name: copied(program) for name, program in rewritten.items()}, again)
        missing = read_weights(again).keys() - read_weights(artifact.program_path).keys()
    if not missing:
        return
    for method, program in rewritten.items():
        for name, tensor, node in _constants(program):
            if any(digest in missing for digest in _digests(tensor)):
                yield method, node, f"the weight '{name}' is another"


def _digests(tensor: torch.Tensor) -> Iterator[str]:
    """sha256 of a weight's bytes in each order in which a backend stores it."""
    forms = [tensor]
    if tensor.dim() == 2:
        forms.append(tensor.t())
    if tensor.dim() == 4:
        forms += [tensor.permute(0, 2, 3, 1), tensor.permute(1, 2, 3, 0)]
    for form in forms:
        yield hashlib.sha256(form.contiguous().numpy().tobytes()).hexdigest()


def _constants(program: ExportedProgram) -> Iterator[tuple[str, torch.Tensor, Node]]:
    """(name, value, placeholder) of each weight and constant that the program does not change."""
    changed = set(program.graph_signature.buffers_to_mutate.values())
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if (
            spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
            and spec.target is not None
            and spec.target not in changed
        ):
            store: Any = program.state_dict if spec.target in program.state_dict else program.constants
            yield spec.target, store[spec.target].detach(), nodes[spec.arg.name]


# passes


def _passes(
    recipe, program: ExportedProgram, method: str, inputs: tuple, artifact: Artifact
) -> Iterator[Place]:
    """The first pass after which the program answers otherwise."""
    want = _run(program, inputs)
    program = copied(program)
    for rewrite in recipe.passes:
        program, _ = run_passes(program, (rewrite,))
        if not _agree(_run(program, inputs), want, artifact, method):
            yield Place(
                method,
                f"the pass {rewrite.__name__} changes the numbers: build with --skip-pass {rewrite.__name__}",
                "",
                "",
            )
            return


def _run(program: ExportedProgram, inputs: tuple) -> list[torch.Tensor]:
    with torch.no_grad():
        return pytree.tree_leaves(copied(program).module()(*inputs))


def _agree(got: list, want: list, artifact: Artifact, method: str) -> bool:
    limits = artifact.methods[method].tolerance
    return all(
        Comparison.of(g, w).within(limits.max_abs_relative, limits.min_sqnr_db) for g, w in zip(got, want)
    )


# modules


def _modules(
    recipe, program: ExportedProgram, method: str, inputs: tuple, artifact: Artifact
) -> Iterator[Place]:
    """The first module whose value the emitted program computes otherwise."""
    probed, nodes = _probed(program)
    want = _run(probed, inputs)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"probed.{artifact.target.format}"
        recipe.emit({method: _rewritten(artifact, recipe, method, probed)}, file)
        manifest = dataclasses.replace(artifact.manifest, program=file.name)
        emitted = Program(Artifact(Path(folder), manifest, file.name))
        got = list(emitted[method].execute(inputs))
    limits = artifact.methods[method].tolerance
    first = len(want) - len(nodes)
    for node, theirs, ours in zip(nodes, got[first:], want[first:]):
        compared = Comparison.of(theirs, ours)
        if not compared.within(limits.max_abs_relative, limits.min_sqnr_db):
            yield Place(
                method,
                f"{node.target} gives another value (max abs {compared.max_abs:.1e},"
                f" {compared.max_abs_relative:.1e} x range)",
                *_source(node),
            )
            return


def _probed(program: ExportedProgram) -> tuple[ExportedProgram, list[Node]]:
    """The program with the last value of each module as a further output, and the nodes of those,
    in order.
    """
    program = copied(program)
    last: dict[str, Node] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if (
            node.op == "call_function"
            and isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and _source(node)[0]
        ):
            last[_source(node)[0]] = node
    order = {node: index for index, node in enumerate(program.graph.nodes)}
    nodes = sorted(last.values(), key=order.__getitem__)
    step = -(-len(nodes) // PROBES)
    nodes = nodes[::step] if step else []
    (output,) = (n for n in program.graph.nodes if n.op == "output")
    output.args = ((*output.args[0], *nodes),)
    specs = program.graph_signature.output_specs
    specs.extend(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in nodes)
    outputs = sum(spec.kind is OutputKind.USER_OUTPUT for spec in specs)
    signature_of(program).out_spec = pytree.tree_flatten(tuple(range(outputs)))[1]
    return program, nodes


def _source(node: Node) -> tuple[str, str]:
    """The module that a node belongs to, as the model names it, and its line: 'file.py:12: y =
    self.fc(x)'.
    """
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module = str(stack[-1][0]) if stack else ""
    lines = re.findall(
        r'File "([^"]+)", line (\d+), in \S+\s*\n?\s*([^\n]*)', node.meta.get("stack_trace") or ""
    )
    if not lines:
        return module, ""
    file, line, text = lines[-1]
    return module, f"{Path(file).name}:{line}: {text.strip()}"
