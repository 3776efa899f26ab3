"""Methods that run on emulated boards, through the command that a user types."""

import json

from command_line import edgeexport

METHODS = {
    "micro": ("classify",),
    "whisper": ("decode_step", "prefill", "log_mel", "encode"),
    "blip": ("decode_step", "prefill", "encode_image"),
    "sam2": ("decode_masks", "encode_image"),
    "edgetam": ("decode_masks", "encode_image"),
    "yolo": ("detect",),
    "mvit": ("classify",),
}
"""All methods of all models; beside the full MViT a micro one, of the same modules, fewer and
narrower.
"""

QUICK = {("micro", "classify"), ("whisper", "decode_step"), ("blip", "decode_step")}
"""Those that the emulator is done with in a minute: `scripts/test` runs these, `pytest
runtime_tests -m emulated` all, for some hours.
"""

BOARDS = ("raspberry_pi_5", "raspberry_pi_4", "android_arm64_baseline")
"""The first is what tests run on; scripts/update-reference counts on all."""


def emulate(folder, board, method):
    """The findings of a check on an emulated board."""
    done = edgeexport(
        "check", folder, "--board", board, "--emulate", "--method", method, "--json", check=False
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["findings"]


def instructions(findings) -> int:
    """What a call took."""
    (counted,) = [f for f in findings if f["check"] == "instructions"]
    return counted["details"]["instructions"]["all"]
