"""YOLO11 pose: the static head, what the recipe makes of it, and checkpoints that are read without
running them. A small one of its blocks.
"""

import copy
import os
import subprocess
import sys

import pytest
import torch

from edgeexport.compiler.capture import capture
from edgeexport.compiler.recipes.xnnpack import recipe
from edgeexport.compiler.rewrite import run_passes
from edgeexport.errors import UsageError, WeightsError
from edgeexport.method import Dim, Input, Method, Output, Weights
from edgeexport.modeling.weights import randomize
from edgeexport.models import yolo11_pose as yolo
from edgeexport.samplers import Uniform

SIZE = 64
SMALL = {  # the blocks of the real one (but C3k, which is more convolutions), two strides in place of three
    "nc": 1,
    "kpt_shape": [17, 3],
    "backbone": [
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "Conv", [32, 3, 2]],
        [-1, 1, "C3k2", [32, False, 0.25]],
        [-1, 1, "Conv", [64, 3, 2]],
        [-1, 1, "C3k2", [64, False]],
        [-1, 1, "SPPF", [128, 5]],
        [-1, 1, "C2PSA", [128]],
    ],
    "head": [
        [-1, 1, "nn.Upsample", [None, 2, "nearest"]],
        [[-1, 2], 1, "Concat", [1]],
        [-1, 1, "C3k2", [32, False]],
        [[9, 6], 1, "Pose", ["nc", "kpt_shape"]],
    ],
}


@pytest.fixture(scope="module")
def small():
    module = (
        yolo._ultralytics("nn.tasks")
        .PoseModel(copy.deepcopy(SMALL), verbose=False)
        .eval()
        .requires_grad_(False)
    )
    randomize(module, 0)
    yolo._settle(module)
    return module


def method(module, batch):
    outputs = tuple(Output(n) for n in ("boxes", "scores", "keypoints", "visibility"))
    return Method(
        "detect", module, (Input("image", ("batch", 3, SIZE, SIZE), sample=Uniform()),), outputs, (batch,)
    )


def furthest(answers, wanted):
    return max(float((a - w).abs().max()) for a, w in zip(answers, wanted, strict=True))


@pytest.mark.parametrize("batch", [1, 3])
def test_the_static_head_says_what_ultralytics_says(small, batch):
    image = torch.rand(batch, 3, SIZE, SIZE)
    wanted = yolo.OriginalDetector(small)(image)
    assert [list(w.shape[1:]) for w in wanted] == [[320, 4], [320], [320, 17, 2], [320, 17]]
    assert furthest(yolo.with_static_head(small, SIZE)(image), wanted) < 1e-4
    assert hasattr(small.model[0], "bn"), "the original keeps its norms: it is what the file is compared with"


def test_the_reference_is_ultralytics_own_answer_rearranged(small):
    image = torch.rand(2, 3, SIZE, SIZE)
    raw = small(image)[0]
    boxes, scores, keypoints, visibility = yolo.OriginalDetector(small)(image)
    assert torch.equal(scores, raw[:, 4])
    for point in (0, 16):
        x, y, seen = raw[:, 5 + 3 * point], raw[:, 6 + 3 * point], raw[:, 7 + 3 * point]
        assert torch.equal(keypoints[:, :, point], torch.stack([x, y], -1)) and torch.equal(
            visibility[:, :, point], seen
        )
    centre, size = (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]
    assert torch.allclose(torch.cat([centre, size], -1), raw[:, :4].transpose(1, 2), atol=1e-4)


@pytest.mark.long
def test_every_batch_runs_in_one_delegate_and_17_is_refused(small, tmp_path):
    from executorch.runtime import Runtime

    captured = capture(method(yolo.with_static_head(small, SIZE), Dim("batch", 1, 16)))
    assert captured.mode == "strict"
    made = recipe("fp32")
    program, reports = run_passes(captured.program, made.passes)
    fired = {r.name for r in reports if r.changes}
    assert {"upsample_late", "split_as_slice", "decompose_upsample", "merge_slices", "matmul_as_bmm"} <= fired
    delegation = made.emit({"detect": program}, tmp_path / "p.pte")["detect"]
    assert delegation.delegates == 1 and delegation.outside == ()
    loaded = Runtime.get().load_program(tmp_path / "p.pte").load_method("detect")
    for batch in (1, 2, 7, 16):
        image = torch.rand(batch, 3, SIZE, SIZE)
        assert furthest(loaded.execute([image]), yolo.OriginalDetector(small)(image)) < 1e-4, batch
    with pytest.raises(RuntimeError):
        loaded.execute([torch.rand(17, 3, SIZE, SIZE)])


def test_without_the_static_head_strict_capture_fails(small):
    module = copy.deepcopy(small)
    module.model[-1].export = True
    module.model[-1].shape = None  # it has counted no cells yet: what it counted for this size it would use
    with pytest.raises(Exception, match="unbacked"):
        torch.export.export(module, (torch.rand(2, 3, SIZE, SIZE),), strict=True)


def test_random_weights_repeat_and_let_the_image_through():
    first, again = (yolo.load("yolo11n-pose", Weights("random", 5)) for _ in range(2))
    assert first[1].sha256 == again[1].sha256 != yolo.load("yolo11n-pose", Weights("random", 6))[1].sha256
    answers = yolo.OriginalDetector(first[0])(torch.rand(2, 3, 320, 320))
    assert all((a[0] != a[1]).float().mean() > 0.9 for a in answers[1:])
    assert float(answers[1].std()) > 1e-3, "scores differ from place to place"
    assert torch.equal(first[0].model[-1].dfl.conv.weight.flatten(), torch.arange(16.0)), (
        "the bins of the distribution are not weights"
    )


@pytest.mark.parametrize(
    ("name", "millions"), [("yolo11n-pose", 2.9), ("yolo11s-pose", 9.9), ("yolo11m-pose", 20.9)]
)
def test_the_architecture_is_the_released_one(name, millions):
    made = yolo._architecture(name)
    head = made.model[-1]
    assert round(sum(p.numel() for p in made.parameters()) / 1e6, 1) == millions
    assert f"{millions} M" in yolo.VARIANTS[name]["summary"]
    assert head.nc == 1 and list(head.kpt_shape) == [17, 3] and head.stride.tolist() == [8.0, 16.0, 32.0]


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A checkpoint as Ultralytics releases them: modules pickled in half precision, with facts of
    the training.
    """
    module = yolo._architecture("yolo11n-pose")
    randomize(module, 1)
    path = tmp_path_factory.mktemp("weights") / "yolo11n-pose.pt"
    facts = {
        "epoch": -1,
        "ema": None,
        "optimizer": None,
        "train_args": {"task": "pose", "imgsz": 640},
        "date": "2024-09-30",
        "version": "8.3.0",
    }
    torch.save(facts | {"model": copy.deepcopy(module).half()}, path)
    return path, module


def test_a_released_checkpoint_is_read_without_running_it(released, monkeypatch):
    path, module = released
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    assert set(names) == set(yolo._PICKLED), "the allow-list holds what is needed and no more"
    monkeypatch.setattr(
        "ultralytics.nn.tasks.BaseModel.__setstate__",
        lambda *_: pytest.fail("a class of the file was used"),
        raising=False,
    )
    loaded, weights = yolo.load("yolo11n-pose", Weights("checkpoint", path=str(path)))
    assert not loaded.training and weights.origin == str(path)
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype in (torch.float32, torch.int64) and torch.equal(
            tensor, module.half().state_dict()[name].to(tensor.dtype)
        ), name


def test_the_average_of_a_training_is_preferred(released, tmp_path):
    path, module = released
    other = copy.deepcopy(module)
    randomize(other, 2)
    torch.save({"model": module, "ema": other}, tmp_path / "last.pt")
    loaded, _ = yolo.load("yolo11n-pose", Weights("checkpoint", path=str(tmp_path / "last.pt")))
    assert torch.equal(loaded.model[0].conv.weight, other.model[0].conv.weight)


def test_a_state_dict_in_safetensors_is_read(released, tmp_path):
    from safetensors.torch import save_file

    module = copy.deepcopy(released[1]).float()
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    loaded, _ = yolo.load("yolo11n-pose", Weights("checkpoint", path=str(tmp_path / "w.safetensors")))
    assert torch.equal(loaded.model[0].conv.weight, module.model[0].conv.weight)


def test_a_checkpoint_of_another_variant_is_refused(released):
    with pytest.raises(
        WeightsError,
        match=(
            r"another model or variant: model\.0\.conv\.weight has shape \[16, 3, 3, 3\], the model has \[32"
        ),
    ):
        yolo.load("yolo11s-pose", Weights("checkpoint", path=str(released[0])))


class Payload:
    def __reduce__(self):
        return (os.system, ("touch SHOULD_NOT_EXIST",))


class Called:
    """Pickles as a call of an allowed class with arguments: it must not get further than its
    name.
    """

    def __reduce__(self):
        return (torch.nn.Conv2d, (1, 2, 3))


class Listed(torch.nn.Sequential):
    """Not in the allow-list, whatever it derives from."""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"model": Payload()}, "would run code"),
        ({"model": Listed()}, "would run code"),
        (Payload(), "would run code"),
        ({"model": Called()}, "damaged"),
        ({"model": torch.nn.Sequential()}, "no tensors"),
        ({"ema": 3, "model": None}, "no tensors"),
    ],
)
def test_other_pickles_are_refused_and_not_run(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    torch.save(content, "w.pt")
    with pytest.raises(WeightsError, match=said):
        yolo.load("yolo11n-pose", Weights("checkpoint", path="w.pt"))
    assert not (tmp_path / "SHOULD_NOT_EXIST").exists()


def test_a_module_that_holds_itself_is_refused(tmp_path):
    loop = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1))
    loop._modules["self"] = loop
    torch.save({"model": loop}, tmp_path / "w.pt")
    with pytest.raises(WeightsError, match="another model"):
        yolo.load("yolo11n-pose", Weights("checkpoint", path=str(tmp_path / "w.pt")))


def test_a_missing_extra_is_named(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "ultralytics"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "ultralytics", None)
    with pytest.raises(UsageError, match=r"pip install 'edgeexport\[yolo\]'.*AGPL-3\.0"):
        yolo.load("yolo11n-pose", Weights("random"))


def test_pretrained_weights_that_cannot_be_had_say_what_to_do(monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("Download failure. Environment may be offline.")

    monkeypatch.setattr(yolo._ultralytics("utils.downloads"), "attempt_download_asset", offline)
    with pytest.raises(WeightsError, match="yolo11n-pose.pt cannot be had.*--weights PATH.*--weights random"):
        yolo.load("yolo11n-pose", Weights())


def test_importing_ultralytics_changes_nothing_of_ours():
    """In a process of its own: other tests import Ultralytics as it is."""
    code = (
        "import os, torch\nfrom PIL import Image\nfrom edgeexport.models import yolo11_pose as"
        " yolo\nyolo._ultralytics('nn.tasks')\nassert Image.open.__module__ == 'PIL.Image' and"
        " torch.save.__module__ == 'torch.serialization'\nassert os.environ['YOLO_AUTOINSTALL'] == 'false'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_licence_is_said():
    for name in yolo.VARIANTS:
        made = yolo.model(name)
        assert "AGPL-3.0" in made.summary and made.source.licence == "AGPL-3.0"
        assert (
            len(made.prepare["keypoints"]) == 17 and max(max(pair) for pair in made.prepare["skeleton"]) == 16
        )
