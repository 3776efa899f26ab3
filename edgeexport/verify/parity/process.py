"""The child process of `parity`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.folder import Artifact, open_artifact
from edgeexport.pipelines import pipeline
from edgeexport.runtime.child_process import Report, run_as_child
from edgeexport.runtime.program import Program
from edgeexport.verify.parity import ANSWERS
from edgeexport.verify.parity.pipelines import run_pipeline


def main(request: dict[str, Any], report: Report) -> dict[str, Any] | None:
    """With the runtime of the request, answer every case of `cases_of` that this artifact takes
    (written to ANSWERS, which stays if the rest crashes), then the results of its pipelines.
    """
    from safetensors.torch import save_file

    folder = Path(request["folder"])
    program, cases_of = Program(open_artifact(request["path"])), open_artifact(request["cases_of"])
    program.engine = importlib.import_module(f"edgeexport.runtime.{request['engine']}").Engine(
        program.artifact
    )
    save_file(_answers(program, cases_of, report), folder / ANSWERS)
    results = {}
    for name in program.manifest.pipelines or ():
        report.stage(f"the pipeline {name}")
        made = folder / name
        made.mkdir()
        results[name] = run_pipeline(program, pipeline(name), made, request["options"])
    return results or None


def _answers(program: Program, cases_of: Artifact, report: Report) -> dict:
    from edgeexport.errors import InputError

    golden, answers = GoldenAnswers(cases_of.golden()), {}
    for name, entry in cases_of.methods.items():
        report.stage(name)
        method = program[name]
        for case in entry.cases:
            before, inputs = case_calls(case, program, method, golden)
            try:
                method.validate(inputs)
            except InputError:
                # a size that the other artifact takes and this one does not: no answer, and the
                # pair is compared without it
                continue
            if case.setup:
                program[case.setup.method](*before)
            for output, tensor in zip(method.outputs, method(*inputs)):
                answers[f"{name}/{case.id}/{output}"] = tensor.contiguous().clone()
    return answers


if __name__ == "__main__":
    run_as_child(main)
