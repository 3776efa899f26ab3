"""Programs for download: small `.pte` files, their weights apart in `.ptd` files that they share,
and a manifest with the size and hash of each.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeexport.artifact import validated_json
from edgeexport.artifact.folder import Artifact, Kind, open_artifact, record, staged
from edgeexport.artifact.targets import is_pte
from edgeexport.errors import ArtifactError, RuntimeFault, UsageError, foreign_errors
from edgeexport.progress import Progress

if TYPE_CHECKING:
    from edgeexport.artifact.pte_segments import Weight

MANIFEST, NOTICE = "download.json", "NOTICE"
DELIVERY = Kind("a delivery", MANIFEST)

RUNTIME = "ExecuTorch"

SHARED_LEAST_BYTES = 65536
"""Weights of fewer bytes that programs have in common get no file of their own: another download
would cost more.
"""


@dataclass(frozen=True)
class Delivery:
    """What was written: the folder, and what its MANIFEST says."""

    path: Path
    contents: Mapping[str, Any]


def deliver(
    artifacts: Sequence[str | Path],
    out: str | Path,
    *,
    whole: bool = False,
    allow_random: bool = False,
    allow_failed: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Delivery:
    """Write the programs of `artifacts` (paths, or NAME=PATH) into the folder `out`, as files to
    download.

    Weights go into data files, one for each set of programs that share them, named by their
    content: what is in one is never downloaded twice, and a new version of a program brings only
    what changed. With `whole` each program keeps its weights, for a runtime that takes no data
    files. Every program was loaded from the files as they are delivered, and answers what it
    answered whole, to the last bit.

    Raises UsageError and its kin for what no app should have, RuntimeFault when an answer differs;
    nothing half-written is left.
    """
    from edgeexport.ship.mobile import refuse_inside, refuse_unready

    progress, out = progress or Progress(), Path(out)
    opened = _opened(artifacts)
    for artifact in opened.values():
        refuse_unready(artifact, allow_random, allow_failed)
        refuse_inside(out, artifact.path)
    with staged(out, force, DELIVERY) as staging, foreign_errors(str(out)):
        with progress.step("write the files"):
            parts = _copied(opened, staging.folder) if whole else _split(opened, staging.folder)
        programs = {}
        for name, artifact in opened.items():
            with progress.step(f"run {name} from its files"):
                calls = _verify(artifact, parts[name])
            programs[name] = _entry(artifact, parts[name], calls, staging.folder, name)
        _write_notice(opened.values(), staging.folder)
        contents = _contents(programs, staging.folder)
        staging.publish()
    return Delivery(out, contents)


def open_delivery(path: str | Path) -> Delivery:
    """Read and verify a delivery.

    Raises ArtifactError when it is none, is damaged, or has a changed file.
    """
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise ArtifactError(
            f"{path} is not a delivery: it has no {MANIFEST}. Give the folder that `edgeexport deliver`"
            " wrote."
        )
    contents = validated_json.read(folder / MANIFEST, "delivery")
    changed = [
        name
        for name, facts in contents["files"].items()
        if not (folder / name).is_file() or asdict(record(folder / name)) != facts
    ]
    if changed:
        raise ArtifactError(
            f"{path} is damaged: {', '.join(changed)} is missing or was changed. Copy it again."
        )
    return Delivery(folder, contents)


def _opened(artifacts: Sequence[str | Path]) -> dict[str, Artifact]:
    """The artifacts by the names that their programs get: as given, or that of the model."""
    opened: dict[str, Artifact] = {}
    for text in map(str, artifacts):
        name, given, path = text.partition("=")
        named = given and not Path(text).exists()  # a folder may have such a name
        artifact = open_artifact(path if named else text, is_pte)
        name = name if named else artifact.manifest.model.name
        if (
            not name
            or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
            or name.startswith(".")
        ):
            raise UsageError(f"'{name}' is no name for a file to download: write letters, digits, . _ and -.")
        if name in opened:
            raise UsageError(
                f"Two programs would be called {name}. Name them apart: {name}={opened[name].name}"
                f" OTHER={artifact.name}."
            )
        opened[name] = artifact
    if not opened:
        raise UsageError("Give at least one artifact.")
    return opened


def _copied(opened: Mapping[str, Artifact], folder: Path) -> dict[str, tuple[Path, ...]]:
    return {
        name: (Path(shutil.copyfile(artifact.program_path, folder / f"{name}.pte")),)
        for name, artifact in opened.items()
    }


def _split(opened: Mapping[str, Artifact], folder: Path) -> dict[str, tuple[Path, ...]]:
    """Write programs without weights, and a data file for each set of programs that share some; the
    files of each, the program first.
    """
    from edgeexport.artifact.detached_weights import take_weights
    from edgeexport.artifact.pte_segments import ProgramFile, write_data_file

    parts: dict[str, list[Path]] = {}
    taken: dict[str, dict[str, Weight]] = {}
    for name, artifact in opened.items():
        file = ProgramFile.read(artifact.program_path)
        if file is None:
            raise UsageError(
                f"{artifact.name}'s program has its weights inside the flatbuffer, where they cannot be taken"
                " from. Give --whole."
            )
        taken[name] = take_weights(file)
        parts[name] = [folder / f"{name}.pte"]
        file.write(parts[name][0])
    for names, weights in _groups(taken).items():
        path = folder / "weights.ptd"
        write_data_file(path, weights)
        path = path.rename(folder / f"weights-{record(path).sha256[:12]}.ptd")
        for name in names:
            parts[name].append(path)
    return {name: tuple(paths) for name, paths in parts.items()}


def _groups(taken: Mapping[str, Mapping[str, Weight]]) -> dict[tuple[str, ...], dict[str, Weight]]:
    """The weights of programs, by the names of the programs that are to share a file of them; each
    program has each of its weights in one file.
    """
    users: dict[str, set[str]] = defaultdict(
        set
    )  # by content: another name for the same bytes is in the same file
    sizes: dict[str, int] = {}
    for name, weights in taken.items():
        for weight in weights.values():
            users[weight.sha256].add(name)
            sizes[weight.sha256] = len(weight.content)
    common: Counter[tuple[str, ...]] = Counter()
    for content, names in users.items():
        common[tuple(sorted(names))] += sizes[content]
    large = [names for names, size_bytes in common.most_common() if size_bytes >= SHARED_LEAST_BYTES]
    groups: dict[tuple[str, ...], dict[str, Weight]] = defaultdict(dict)
    for weights in taken.values():
        for key, weight in sorted(weights.items()):
            for home in _homes(tuple(sorted(users[weight.sha256])), large):
                groups[home][key] = weight
    return groups


def _homes(names: tuple[str, ...], large: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The groups that a weight of the programs `names` goes to, each of them in one: theirs if it
    is `large`, else large ones that are among them, and files of their own.
    """
    left = set(names)
    for group in [names] * (names in large) + [*large]:
        if left.issuperset(group):
            yield group
            left -= set(group)
    yield from ((name,) for name in sorted(left))


def _verify(artifact: Artifact, parts: tuple[Path, ...]) -> int:
    """Call each method at its least and its greatest case, whole and from `parts`; how many calls
    were equal, to the last bit. Raises RuntimeFault.
    """
    import torch

    from edgeexport.artifact.cases import GoldenAnswers, answer
    from edgeexport.runtime.program import Program

    runtime = "native" if len(parts) > 2 else "executorch"  # Python's bindings take one data file
    apart, together = (Program(each, runtime=runtime) for each in (replace(artifact, apart=parts), artifact))
    golden, calls = GoldenAnswers(artifact.golden()), 0
    for name in apart.methods:
        cases = apart.cases(name)
        for case in (cases[0], cases[-1])[: len(cases)]:
            ours, theirs = (answer(each, name, case, golden) for each in (apart, together))
            if not all(map(torch.equal, ours, theirs)):
                raise RuntimeFault(
                    f"'{name}' of {artifact.name} answers differently with its weights apart"
                    f" ({case.label}). Nothing was written; give --whole."
                )
            calls += 1
    return calls


def _entry(
    artifact: Artifact, parts: tuple[Path, ...], calls: int, folder: Path, name: str
) -> dict[str, Any]:
    """What the manifest says of a program."""
    manifest = artifact.manifest
    files = {"program": parts[0].name, "data": [path.name for path in parts[1:]], "tokenizer": None}
    tokenizer = manifest.prepare.get("tokenizer", "")
    if tokenizer in manifest.files:
        files["tokenizer"] = f"{name}.{tokenizer}"
        shutil.copyfile(artifact.path / tokenizer, folder / files["tokenizer"])
    needed = [files["program"], *files["data"], *([files["tokenizer"]] if files["tokenizer"] else [])]
    return {
        **files,
        "size_bytes": sum((folder / file).stat().st_size for file in needed),
        "model": manifest.model.name,
        "target": manifest.target,
        "precision": manifest.precision,
        "licence": manifest.model.source.licence,
        "weights": {"source": manifest.weights.source, "sha256": manifest.weights.sha256},
        "made_of": {"program": manifest.program, **asdict(manifest.program_file)},
        "equal_calls": calls,
        "versions": {
            package: manifest.versions[package] for package in ("edgeexport", "executorch", "torch")
        },
    }


def _write_notice(artifacts: Iterable[Artifact], folder: Path) -> None:
    from edgeexport.ship.mobile.notice import notice

    texts = [
        notice(artifact.manifest, f"{RUNTIME} {artifact.manifest.versions['executorch']}")
        for artifact in artifacts
    ]
    (folder / NOTICE).write_text(f"\n\n{'=' * 72}\n\n".join(texts), encoding="utf-8")


def _contents(programs: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write MANIFEST: nothing in it depends on when or where it was written."""
    contents = {
        "format": 1,
        "kind": "delivery",
        "programs": programs,
        "files": {file.name: asdict(record(file)) for file in sorted(folder.iterdir())},
    }
    validated_json.write(folder / MANIFEST, contents, "delivery")
    return contents
