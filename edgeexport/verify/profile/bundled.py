"""A `.bpte`: the program with the recorded cases and eager's answers in one file, which
ExecuTorch's own tools run and verify.

In Python it is `executorch.extension.pybindings.portable_lib` (the examples of the documentation
call a `load_bundled_input`, which 1.5 does not have):

    module = portable_lib._load_bundled_program_from_buffer(Path("model.bpte").read_bytes())
    # raises RuntimeError where they differ
    module.verify_result_with_bundled_expected_output("encode_image", 0, rtol, atol)

Cases are numbered within their method, in the order of the manifest without those that start from a
state; their sizes may differ. An element may differ by atol + rtol x its expected value. A
tolerance of this project is relative to the range of the whole answer, so give atol = tolerance x
range: the defaults (1e-5, 1e-8) refuse right elements that are close to zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edgeexport import text
from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.errors import UsageError
from edgeexport.runtime.program import Program

LIMIT_BYTES = 2**31 - 2**24
"""A flatbuffer's offsets are of 31 bits."""


def write_bundled(program: Program, methods: Iterable[str], path: Path) -> None:
    """Write the program with the cases of `methods` to `path`.

    Raises UsageError for more than fits.

    A case that starts from a state is left out: a bundled case is one call.
    """
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.core import BundledProgram
    from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

    golden, expected = program.artifact.golden(), program.artifact.expected()
    suites, size_bytes = [], program.artifact.program_path.stat().st_size
    for name in methods:
        method, cases = program[name], []
        for case in program.cases(name):
            if case.setup is not None:
                continue
            _, inputs = case_calls(case, program, method, GoldenAnswers(golden))
            answers = [expected[f"{name}/{case.id}/{output}"] for output in method.outputs]
            size_bytes += sum(t.nbytes for t in (*inputs, *answers))
            cases.append(MethodTestCase(list(inputs), answers))
        if cases:
            suites.append(MethodTestSuite(name, cases))
    if size_bytes > LIMIT_BYTES:
        raise UsageError(
            f"A bundled program holds at most {text.size(LIMIT_BYTES)}, this would be"
            f" {text.size(size_bytes)}: choose fewer methods with --method."
        )
    path.write_bytes(
        serialize_from_bundled_program_to_flatbuffer(
            BundledProgram(None, suites, pte_file_path=str(program.artifact.program_path))
        )
    )
