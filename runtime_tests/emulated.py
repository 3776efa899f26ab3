"""Methods that run on emulated boards, through the command that a user types."""

import json

from command_line import edgeexport

METHODS = {"whisper": "decode_step", "yolo": "detect", "sam2": "decode_masks", "blip": "decode_step", "micro": "classify"}
"""One of each model; MViT is the micro one (the same modules, fewer and narrower), the full one would take the emulator an hour."""

SLOW = {"yolo", "sam2"}
"""Those that take some minutes each: `scripts/test` leaves them out, `pytest runtime_tests -m emulated` runs them."""

BOARDS = ("raspberry_pi_5", "raspberry_pi_4", "android_arm64_baseline")
"""The first is what tests run on; scripts/update-reference counts on all."""


def emulate(folder, board, method):
    """The findings of a check on an emulated board."""
    done = edgeexport("check", folder, "--board", board, "--emulate", "--method", method, "--json", check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["findings"]


def instructions(findings) -> int:
    """What a call took."""
    (counted,) = [f for f in findings if f["check"] == "instructions"]
    return counted["details"]["instructions"]["all"]
