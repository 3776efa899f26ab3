"""What programs need of a runtime: operators, dtypes and backends; as the YAML of ExecuTorch's
selective build, in bytes, and held against a library.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeexport.artifact.folder import Artifact, open_artifacts
from edgeexport.artifact.pte import DTYPES, is_program, operator_name, read_program
from edgeexport.artifact.pte_contents import read_contents
from edgeexport.artifact.targets import is_pte
from edgeexport.errors import ArtifactError, UsageError
from edgeexport.runtime.kernel_code import CORE, KERNELS, kernel_code_bytes
from edgeexport.runtime.library import read_libraries

if TYPE_CHECKING:
    from executorch.exir.schema import ExecutionPlan, Tensor

ANY_KERNEL = "default"
"""The kernel key of an operator whose dtypes are not known, as ExecuTorch names it."""


@dataclass(frozen=True)
class Operator:
    """An operator that is called outside the delegates: how often in the instructions, from which
    methods, with tensors of which dtypes.

    `kernel_keys` are the dtypes and dimension orders of each call's tensors, as ExecuTorch's
    registry writes them.
    """

    name: str
    calls: int
    methods: tuple[str, ...]
    dtypes: tuple[str, ...]
    kernel_keys: tuple[str, ...]


@dataclass(frozen=True)
class Needs:
    """What one or more programs need, all together."""

    programs: tuple[str, ...]
    operators: tuple[Operator, ...]
    backends: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Operators and backends."""
        return tuple(operator.name for operator in self.operators) + self.backends


@dataclass(frozen=True)
class Verdict:
    """What the libraries for one architecture lack.

    Presence by name is all that was asked: not dtypes, and not whether versions fit.
    """

    machine: str
    libraries: tuple[str, ...]
    size_bytes: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class RuntimeSize:
    """What a selective build's runtime would take on x86-64, from executorch's own package: an
    estimate, put together from what was measured.

    `library_bytes` are the files that go in as they are: the core, the thread pool, the backends.
    `kernel_code_bytes` is the code of the operators' kernels out of the kernel libraries, by
    library; `kernel_library_bytes` what these take with every operator. A build for dtypes too,
    with -Os or for another CPU is smaller or larger; constants beside the kernels' code are not in
    it.
    """

    library_bytes: dict[str, int]
    kernel_code_bytes: dict[str, int]
    kernel_library_bytes: dict[str, int]

    @property
    def estimated_bytes(self) -> int:
        """With the kernels that are needed."""
        return sum(self.library_bytes.values()) + sum(self.kernel_code_bytes.values())

    @property
    def everything_bytes(self) -> int:
        """With the whole kernel libraries."""
        return sum(self.library_bytes.values()) + sum(self.kernel_library_bytes.values())


def needs(paths: Iterable[Path]) -> Needs:
    """What the programs at `paths` need: artifacts, archives of them, or `.pte` files.

    Raises ArtifactError, and UsageError for one that is no `.pte`.
    """
    names, backends = [], set()
    calls: dict[str, int] = defaultdict(int)
    methods: dict[str, set[str]] = defaultdict(set)
    keys: dict[str, set[str]] = defaultdict(set)
    for program, _ in _programs(paths):
        contents = read_contents(program)
        names.append(contents.file)
        for method in contents.methods:
            backends |= {backend.name for backend in method.backends}
            for name, count in method.operators.items():
                calls[name] += count
                methods[name].add(method.name)
        for name, found in _kernel_keys(program).items():
            keys[name] |= set(found)
    operators = (
        Operator(
            name, calls[name], tuple(sorted(methods[name])), _dtypes(keys[name]), tuple(sorted(keys[name]))
        )
        for name in sorted(calls)
    )
    return Needs(tuple(names), tuple(operators), tuple(sorted(backends)))


def _programs(paths: Iterable[Path]) -> Iterable[tuple[Path, Artifact | None]]:
    """The `.pte` files, each with its artifact, which keeps what was unpacked from an archive."""
    for path in paths:
        if is_program(path):
            yield path, None
            continue
        opened = [artifact for artifact in open_artifacts(path) if is_pte(artifact.target)]
        if not opened:
            raise UsageError(f"{path} has no .pte: only ExecuTorch programs ask a runtime for operators.")
        yield from ((artifact.program_path, artifact) for artifact in opened)


def _kernel_keys(program: Path) -> dict[str, set[str]]:
    """The kernel keys of each operator: version, then dtype and dimension order of each tensor of a
    call, lists of tensors by their first one.

    As ExecuTorch's `codegen.tools.gen_oplist` writes them, which reads programs with native code
    that a damaged one ends.
    """
    keys: dict[str, set[str]] = defaultdict(set)
    for plan in read_program(program).execution_plan:
        calls: list[Any] = [each.instr_args for chain in plan.chains for each in chain.instructions]
        for call in calls:
            if hasattr(call, "op_index"):
                tensors = (_first_tensor(plan, number) for number in call.args)
                key = "|".join(_tensor_key(tensor) for tensor in tensors if tensor is not None)
                keys[operator_name(plan.operators[call.op_index])].add(f"v1/{key}" if key else "v1")
    return keys


def _tensor_key(tensor: Tensor) -> str:
    return f"{int(tensor.scalar_type)};{','.join(map(str, tensor.dim_order))}"


def _first_tensor(plan: ExecutionPlan, number: int) -> Tensor | None:
    """The tensor that a value is, or the first of the list that it is; else None."""
    value: Any = plan.values[number].val
    match type(value).__name__:
        case "Tensor":
            return value
        case "TensorList" | "OptionalTensorList":
            there = [item for item in value.items if item >= 0]  # -1 is None
            return _first_tensor(plan, there[0]) if there else None
    return None


def _dtypes(keys: Iterable[str]) -> tuple[str, ...]:
    """The dtypes in kernel keys: `v1/6;0,1|4;0` has float32 and int64."""
    tensors = (tensor for key in keys for tensor in key.partition("/")[2].split("|") if tensor)
    return tuple(sorted({DTYPES[int(tensor.partition(";")[0])][0] for tensor in tensors}))


def write_yaml(wanted: Needs, path: Path, force: bool = False) -> None:
    """Write `selected_operators.yaml`, what ExecuTorch's code generators take, with the backends in
    a comment. Raises ArtifactError where it may not be written.
    """
    from executorch.codegen.tools.gen_oplist import _dump_yaml

    if path.exists() and not force:
        raise ArtifactError(f"{path} is there already. Give --force to replace it, or another name.")
    names = [operator.name for operator in wanted.operators]
    keys = {operator.name: list(operator.kernel_keys) or [ANY_KERNEL] for operator in wanted.operators}
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            made = Path(folder) / path.name
            _dump_yaml(names, made, ", ".join(wanted.programs), keys)
            comment = (
                f"# Of {', '.join(wanted.programs)}, by edgeexport. Backends, which are chosen apart:"
                f" {', '.join(wanted.backends) or 'none'}.\n"
            )
            made.write_text(comment + made.read_text(encoding="utf-8"), encoding="utf-8")
            os.replace(made, path)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be written ({error.strerror}).") from error


def hold(wanted: Needs, runtime: Path) -> tuple[Verdict, ...]:
    """Whether the runtime library at `runtime` (or each architecture's in an archive) has every
    name that is needed. Raises UsageError.
    """
    return tuple(
        _verdict(wanted.names, machine, libraries)
        for machine, libraries in sorted(read_libraries(runtime).items())
    )


def _verdict(names: Sequence[str], machine: str, libraries: Sequence) -> Verdict:
    found = {name for library in libraries for name in library.names(names)}
    missing = tuple(name for name in names if name not in found)
    return Verdict(
        machine,
        tuple(library.name for library in libraries),
        sum(library.size_bytes for library in libraries),
        missing,
    )


def runtime_size(wanted: Needs) -> RuntimeSize:
    """Measure what a runtime with what is `wanted` would take.

    Raises UsageError where it cannot be measured, or the package lacks something that is needed.
    """
    import executorch

    folder = Path(executorch.__path__[0]) / "lib"
    kernels = kernel_code_bytes((operator.name for operator in wanted.operators), folder)
    libraries = [library for found in read_libraries(folder).values() for library in found]
    files = {Path(library.name).name: library for library in libraries}
    holders = {
        name: [file for file, library in files.items() if library.names([name])] for name in wanted.names
    }
    lacking = [name for name, found in holders.items() if not found]
    if lacking:
        raise UsageError(
            f"The size cannot be measured: executorch's package here has no {', '.join(lacking)}."
        )
    whole = {*CORE, *(file for name in wanted.backends for file in holders[name])} - set(KERNELS)
    return RuntimeSize(
        {file: files[file].size_bytes for file in sorted(whole)},
        kernels,
        {file: files[file].size_bytes for file in sorted(kernels)},
    )
