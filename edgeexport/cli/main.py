"""`edgeexport`: the group, its lazily loaded commands, and the exit codes."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from importlib import metadata

import click

from edgeexport.cli import log
from edgeexport.errors import EdgeExportError, UsageError
from edgeexport.progress import stop_on_interrupt

COMMANDS = {
    "models": "List models and targets.",
    "build": "Build and check an artifact for a target.",
    "check": "Check an artifact from its files alone.",
    "run": "Run an artifact: real input to real output.",
    "profile": "Show where the time of a .pte goes, and what is not delegated.",
    "parity": "Compare what artifacts of one model say, pair by pair.",
    "bench": "Measure latency and memory beside eager, torch.compile and others.",
    "bundle": "Write artifacts of one model into one archive.",
    "package": "Write a library project for apps: Android, iOS, C++.",
    "deliver": "Write programs and shared weights as files to download.",
    "delta": "Say what a new version costs who has the old one.",
    "serve": "Serve a server package over HTTP.",
    "report": "Write a page about artifacts, with plots.",
    "operators": "List what programs need of a runtime, and check one for it.",
    "show": "Show what an artifact, or any .pte, takes, returns and needs.",
}


SERVER = "serve"
"""The command whose logs are its output: they stay on the terminal."""


class LazyGroup(click.Group):
    """Imports a command's file when it is called, or asked for its own help."""

    def list_commands(self, ctx):
        return list(COMMANDS)

    def get_command(self, ctx, name):
        if name not in COMMANDS:
            return None
        return importlib.import_module(f"edgeexport.cli.{name}").command

    def format_commands(self, ctx, formatter):
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx, args):
        import difflib

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"There is no command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)


@click.command(cls=LazyGroup)
@click.version_option(metadata.version("edgeexport"), prog_name="edgeexport")
def cli() -> None:
    """Take PyTorch models to the device, and prove that they still say what the model said.

    \b
    Example:
      edgeexport build sam2 --target xnnpack --weights random
      edgeexport run build/sam2/xnnpack-fp32 --image photo.jpg --point 320,240 --overlay mask.png

    Exit codes: 0 done, 1 a check or a step failed, 2 wrong use.
    """


def main() -> None:
    """Entry point: translates our errors into a message and an exit code."""
    stop_on_interrupt()
    everything = os.environ.get("EDGEEXPORT_LOG") == "debug" or sys.argv[1:2] == [SERVER]
    with contextlib.nullcontext() if everything else log.libraries_apart() as log_path:
        _set_up_logging()
        try:
            cli(standalone_mode=False)
        except click.ClickException as error:
            error.show(file=log.terminal())
            sys.exit(error.exit_code)
        except EdgeExportError as error:
            click.echo(f"Error: {error}", file=log.terminal())
            if error.exit_code != UsageError.exit_code and log.has_content(log_path):
                click.echo(f"What the libraries said of it is in {log_path}.", file=log.terminal())
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            click.echo("Stopped; nothing half-written was left.", file=log.terminal())
            sys.exit(130)
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # the reader went away (head, less); Python flushes at exit
            sys.exit(0)


def _set_up_logging() -> None:
    """Libraries log what only their developers can use: it goes to a file, or else only errors are
    shown; EDGEEXPORT_LOG=debug shows all.
    """
    import logging
    import warnings

    if os.environ.get("EDGEEXPORT_LOG") == "debug":
        logging.basicConfig(level=logging.DEBUG)
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.basicConfig(level=logging.ERROR)
    warnings.filterwarnings("ignore")
    if log.is_apart():
        logging.getLogger("edgeexport").setLevel(logging.INFO)
        return
    # By name and not by logging.disable(), which would also silence the reasons that the
    # partitioner logs.
    for name in (
        "torch",
        "torch.utils._pytree",
        "torch.export",
        "torchao",
        "transformers",
        "executorch",
        "huggingface_hub",
        "root",
    ):
        logging.getLogger(name).setLevel(logging.ERROR)
