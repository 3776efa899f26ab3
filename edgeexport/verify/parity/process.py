"""The child process of `parity`: python -m edgeexport.verify.parity.process ARTIFACT ENGINE FIRST
FOLDER OPTIONS.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from edgeexport import catalog
from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.folder import Artifact, open_artifact
from edgeexport.runtime.program import Program
from edgeexport.verify.parity.pipelines import run_pipeline


def main(path: str, engine: str, first: str, folder: str, options: str) -> None:
    """With the runtime ENGINE, answer every case of the artifact FIRST that this one takes, then
    run the pipeline; what was written before a crash stays.
    """
    from safetensors.torch import save_file

    program, cases_of = Program(open_artifact(path)), open_artifact(first)
    program.engine = importlib.import_module(f"edgeexport.runtime.{engine}").Engine(program.artifact)
    save_file(_answers(program, cases_of), Path(folder) / "answers.safetensors")
    pipeline = catalog.model(program.manifest.model.asked).pipeline
    if pipeline is not None:
        result = run_pipeline(program, pipeline, Path(folder), json.loads(options))
        (Path(folder) / "result.json").write_text(json.dumps(result), encoding="utf-8")


def _answers(program: Program, cases_of: Artifact) -> dict:
    from edgeexport.errors import InputError

    golden, answers = GoldenAnswers(cases_of.golden()), {}
    for name, entry in cases_of.methods.items():
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
    main(*sys.argv[1:])
