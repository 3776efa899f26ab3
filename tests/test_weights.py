"""Checkpoints that are right, of another model, damaged, or carry code."""

import os

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from edgeexport.errors import WeightsError
from edgeexport.modeling.weights import fit, randomize, read_checkpoint, state_sha256


def small():
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))


def test_random_weights_repeat_for_a_seed_and_hide_nothing():
    a, b, c = small(), small(), small()
    randomize(a, 1), randomize(b, 1), randomize(c, 2)
    assert state_sha256(a) == state_sha256(b) != state_sha256(c)
    assert all((p != 0).all() for p in a.parameters())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize("nested", [False, True])
def test_checkpoints_are_read(tmp_path, suffix, nested):
    state, path = small().state_dict(), tmp_path / f"w{suffix}"
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save({"state_dict": state, "epoch": 3} if nested else state, path)
    fit(small(), read_checkpoint(path), path)


def test_a_checkpoint_of_another_model_names_the_first_keys(tmp_path):
    with pytest.raises(
        WeightsError, match=r"another model.*missing 1\.weight.*missing 1\.bias; unknown a; and 1 more"
    ):
        fit(
            small(),
            {**nn.Sequential(nn.Linear(4, 3)).state_dict(), "a": torch.zeros(1), "b": torch.zeros(1)},
            "x.pt",
        )
    with pytest.raises(WeightsError, match=r"0\.weight has shape \[3, 5\], the model has \[3, 4\]"):
        fit(small(), small().state_dict() | {"0.weight": torch.zeros(3, 5)}, "x.pt")


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, 0.95])
def test_a_cut_file_is_refused(tmp_path, suffix, keep):
    path = tmp_path / f"w{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(small().state_dict(), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(WeightsError):
        read_checkpoint(path)


def test_garbage_and_missing_files_are_refused(tmp_path):
    for suffix in (".safetensors", ".pt"):
        (tmp_path / f"g{suffix}").write_bytes(os.urandom(500))
        with pytest.raises(WeightsError):
            read_checkpoint(tmp_path / f"g{suffix}")
    with pytest.raises(WeightsError, match="no checkpoint file"):
        read_checkpoint(tmp_path / "none.pt")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    with pytest.raises(WeightsError, match="not a state dict"):
        read_checkpoint(tmp_path / "empty.pt")


class Payload:
    def __reduce__(self):
        return (os.system, ("touch SHOULD_NOT_EXIST",))


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": Payload()}, "evil.pt")
    with pytest.raises(WeightsError, match="would run code.*safetensors"):
        read_checkpoint("evil.pt")
    torch.save(small(), "module.pt")
    with pytest.raises(WeightsError, match="would run code"):
        read_checkpoint("module.pt")
    assert not (tmp_path / "SHOULD_NOT_EXIST").exists()
