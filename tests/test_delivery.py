"""Programs for download: weights that are shared once, a manifest that is true, and what must be
downloaded again.
"""

import json
from dataclasses import replace

import pytest
import torch
from in_process import run_command

import edgeexport
from edgeexport.artifact.folder import record
from edgeexport.artifact.pte_segments import Weight
from edgeexport.errors import ArtifactError, RuntimeFault, UsageError
from edgeexport.runtime.executorch import Engine
from edgeexport.ship import delivery
from edgeexport.ship.delivery import MANIFEST, deliver, open_delivery
from edgeexport.ship.delta import delta
from edgeexport.ship.mobile import package


@pytest.fixture
def share_all(monkeypatch):
    """Toys have few weights: even those are to be shared, but not what two models happen to have in
    common (a scale).
    """
    monkeypatch.setattr(delivery, "SHARED_LEAST_BYTES", 1000)


def delivered(out, *artifacts, **options):
    return deliver(artifacts, out, allow_random=True, **options)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_programs_with_the_same_weights_share_a_file_of_them(
    toy_artifact, toy_both, text_both, tmp_path, share_all
):
    made = delivered(
        tmp_path / "cdn",
        f"wide={toy_artifact.path}",
        f"narrow={toy_both[0].path}",
        f"text={text_both[0].path}",
    )
    wide, narrow, text = (made.contents["programs"][name] for name in ("wide", "narrow", "text"))
    assert wide["data"] == narrow["data"] and len(wide["data"]) == 1, (
        "one file of weights for the two that have the same"
    )
    assert not set(text["data"]) & set(wide["data"])
    assert {name: vars(record(made.path / name)) for name in made.contents["files"]} == made.contents["files"]
    assert {file.name for file in made.path.iterdir()} == {MANIFEST, *made.contents["files"]}
    for entry, artifact in ((wide, toy_artifact), (narrow, toy_both[0]), (text, text_both[0])):
        needed = [entry["program"], *entry["data"], *filter(None, [entry["tokenizer"]])]
        assert entry["size_bytes"] == sum(made.contents["files"][name]["size_bytes"] for name in needed)
        assert entry["made_of"]["sha256"] == record(artifact.program_path).sha256
        assert entry["equal_calls"] == sum(min(2, len(method.cases)) for method in artifact.methods.values())
    assert open_delivery(made.path).contents == made.contents
    assert "Apache-2.0" in (made.path / "NOTICE").read_text()


def test_every_program_has_every_weight_once_and_no_small_file_is_shared(monkeypatch):
    monkeypatch.setattr(delivery, "SHARED_LEAST_BYTES", 100)
    all_three, two, one, few = (
        Weight(memoryview(bytes([value]) * size)) for value, size in ((1, 8), (2, 120), (3, 200), (4, 90))
    )
    taken = {
        "a": {"w": all_three, "x": two, "again": two},
        "b": {"w": all_three, "x": two, "few": few},
        "c": {"w": all_three, "y": one, "few": few},
    }
    groups = delivery._groups(taken)
    assert {names: sorted(weights) for names, weights in groups.items()} == {
        ("a", "b"): ["again", "w", "x"],
        ("c",): ["few", "w", "y"],
        ("b",): ["few"],
    }
    for name, weights in taken.items():
        assert all(
            [key in group for names, group in groups.items() if name in names].count(True) == 1
            for key in weights
        )


@pytest.mark.toolchain
def test_a_program_in_several_files_runs_in_the_native_runner(text_both, tmp_path, monkeypatch):
    def two(taken):
        weights = list(taken["text"].items())
        return {("text",): dict(weights[::2]), frozenset({"text"}): dict(weights[1::2])}

    monkeypatch.setattr(delivery, "_groups", two)
    made = delivered(tmp_path / "cdn", f"text={text_both[0].path}")
    entry = made.contents["programs"]["text"]
    assert len(entry["data"]) == 2 and entry["equal_calls"] >= 4
    with pytest.raises(UsageError, match="has 2 data files, and Python's runtime takes one"):
        Engine(
            replace(
                text_both[0], apart=tuple(made.path / name for name in (entry["program"], *entry["data"]))
            )
        )


def test_few_common_weights_are_no_download_of_their_own(toy_artifact, toy_both, tmp_path):
    made = delivered(tmp_path / "cdn", f"wide={toy_artifact.path}", f"narrow={toy_both[0].path}")
    wide, narrow = made.contents["programs"].values()
    assert len(wide["data"]) == len(narrow["data"]) == 1 and wide["data"] == narrow["data"], (
        "the same content has the same name"
    )


def test_whole_programs_are_as_they_were_built(toy_artifact, tmp_path):
    made = delivered(tmp_path / "cdn", toy_artifact.path, whole=True)
    entry = made.contents["programs"]["toy"]
    assert (
        entry["data"] == []
        and (made.path / entry["program"]).read_bytes() == toy_artifact.program_path.read_bytes()
    )


def test_nothing_in_it_depends_on_when_or_where_it_was_written(toy_artifact, tmp_path):
    first, second = (delivered(tmp_path / name, toy_artifact.path) for name in ("one", "two"))
    assert contents(first.path) == contents(second.path)


def test_a_program_that_answers_differently_is_not_delivered(toy_artifact, tmp_path, monkeypatch):
    from edgeexport.artifact import cases

    monkeypatch.setattr(
        cases, "answer", lambda program, *rest: (torch.ones(2) * len(program.artifact.apart),)
    )
    with pytest.raises(RuntimeFault, match="answers differently with its weights apart"):
        delivered(tmp_path / "cdn", toy_artifact.path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["{toy}", "{both}"], "Two programs would be called toy. Name them apart"),
        (["a/b={toy}"], "'a/b' is no name for a file"),
        (["={toy}"], "'' is no name"),
        ([".={toy}"], "'.' is no name"),
        (["{server}"], "which is for servers"),
        ([], "at least one"),
    ],
)
def test_what_cannot_be_delivered(names, message, toy_artifact, toy_both, tmp_path):
    paths = {"toy": toy_artifact.path, "both": toy_both[0].path, "server": toy_both[1].path}
    with pytest.raises(UsageError, match=message):
        delivered(tmp_path / "cdn", *(name.format(**paths) for name in names))
    assert list(tmp_path.iterdir()) == []


def test_random_weights_and_failed_checks_are_refused(toy_artifact, toy_copy, tmp_path):
    with pytest.raises(UsageError, match="random weights"):
        deliver([toy_artifact.path], tmp_path / "cdn")
    file = toy_copy / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["findings"][0]["passed"] = False
    file.write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="failed its checks"):
        delivered(tmp_path / "cdn", toy_copy)
    assert delivered(tmp_path / "cdn", toy_copy, allow_failed=True).path.is_dir()


def test_a_folder_with_an_equals_sign_and_one_inside_the_artifact(toy_artifact, toy_copy, tmp_path):
    strange = tmp_path / "run=3"
    toy_copy.rename(strange)
    assert list(delivered(tmp_path / "cdn", strange).contents["programs"]) == ["toy"]
    with pytest.raises(ArtifactError, match="is inside the artifact"):
        delivered(strange / "cdn", strange)


def test_what_is_there_is_replaced_only_when_asked_and_only_a_delivery(toy_artifact, tmp_path):
    delivered(tmp_path / "cdn", toy_artifact.path)
    with pytest.raises(ArtifactError, match="exists already"):
        delivered(tmp_path / "cdn", toy_artifact.path)
    delivered(tmp_path / "cdn", f"other={toy_artifact.path}", force=True)
    assert not (tmp_path / "cdn" / "toy.pte").exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(ArtifactError, match="is not a delivery"):
        delivered(tmp_path / "photos", toy_artifact.path, force=True)


def test_damage_is_named(toy_artifact, tmp_path):
    made = delivered(tmp_path / "cdn", toy_artifact.path)
    file = next(made.path.glob("*.ptd"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArtifactError, match=f"{file.name} is missing or was changed"):
        open_delivery(made.path)
    manifest = json.loads((made.path / MANIFEST).read_text())
    manifest["programs"]["toy"]["program"] = "../toy.pte"
    (made.path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="at programs/toy/program"):
        open_delivery(made.path)
    with pytest.raises(ArtifactError, match="is not a delivery"):
        open_delivery(tmp_path)


def test_a_new_program_with_the_same_weights_costs_only_itself(toy_artifact, toy_both, tmp_path):
    old, new = (
        delivered(tmp_path / name, a.path).path for name, a in (("old", toy_artifact), ("new", toy_both[0]))
    )
    found = delta(old, new)
    costs = {file.name: file.download_bytes for file in found.files}
    assert costs["toy.pte"] == (new / "toy.pte").stat().st_size
    assert [cost for name, cost in costs.items() if name.endswith(".ptd")] == [0]
    assert found.download_bytes == sum(costs.values()) and found.size_bytes == sum(
        f.stat().st_size for f in new.iterdir() if f.name != MANIFEST
    )
    nothing = delta(new, new)
    assert nothing.download_bytes == 0 and nothing.gone == ()


def test_of_whole_programs_it_is_told_what_the_old_one_has(toy_artifact, toy_both, tmp_path):
    found = delta(toy_artifact.path, toy_both[0].path)
    (program,) = [file for file in found.files if file.name.endswith(".pte")]
    assert program.download_bytes == program.size_bytes, "a file is downloaded whole"
    weights_bytes = toy_artifact.manifest.weights.size_bytes
    assert 0.9 * weights_bytes < program.known_bytes < program.size_bytes
    archive = edgeexport.bundle([toy_both[0].path], tmp_path / "toy.pt2")
    assert delta(toy_artifact.path, archive).files == found.files


def test_of_packages_what_apps_have(toy_artifact, toy_both, tmp_path):
    old, new = (
        package(a.path, "cpp", tmp_path / name, allow_random=True).path
        for name, a in (("old", toy_artifact), ("new", toy_both[0]))
    )
    found = delta(old, new)
    assert not [file.name for file in found.files if file.name.startswith("golden/")]
    assert next(file for file in found.files if file.name == "share/toy.pte").download_bytes > 0
    (new / "NOTICE").write_text("changed")
    with pytest.raises(ArtifactError, match="NOTICE"):
        delta(old, new)


def test_two_of_different_kinds_have_no_delta(toy_artifact, tmp_path):
    made = delivered(tmp_path / "cdn", toy_artifact.path)
    with pytest.raises(UsageError, match="give two of one kind"):
        delta(toy_artifact.path, made.path)
    with pytest.raises(ArtifactError, match="is not an artifact"):
        delta(tmp_path, made.path)


def test_the_commands(toy_artifact, toy_both, tmp_path):
    refused = run_command("deliver", toy_artifact.path, "--out", tmp_path / "old")
    assert (
        refused.returncode == 2 and "random weights" in refused.stderr and "Traceback" not in refused.stderr
    )
    done = run_command("deliver", toy_artifact.path, "--out", tmp_path / "old", "--allow-random")
    assert done.returncode == 0 and "calls equal to the whole program's" in done.stdout, done.stderr
    new = delivered(tmp_path / "new", toy_both[0].path).path
    found = json.loads(run_command("delta", tmp_path / "old", new, "--json").stdout)
    assert 0 < found["download_bytes"] < found["size_bytes"]
