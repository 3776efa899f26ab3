"""The shape of the package: imports run one way, the public names are these, commands answer at
once.
"""

import ast
import subprocess
import sys
from pathlib import Path

import edgeexport

PACKAGE = Path(edgeexport.__file__).parent

ORDER = (
    "__main__",
    "cli",
    "build",
    "request",
    "ship",
    "verify",
    "catalog",
    "compiler",
    "models",
    "runtime",
    "artifact",
    "pipelines",
    "modeling",
    "method",
    "samplers",
    "progress",
    "text",
    "errors",
)
"""The rooms, and the files beside them, from the command line down: what stands further left
imports what stands further right.
"""

FILES_AT_THE_ROOT = 10

WITHOUT_THE_COMPILER = ("verify", "runtime")
"""They work from the emitted file and the manifest alone, as a device does."""

WITH_THE_COMPILER = {
    "verify/parity/locate.py": "it finds the pass that changed a number by running them again",
    "verify/bench/case.py": "contenders such as plain AOTInductor are captured from the original model",
}


def imports():
    """(file, room of the importing module, room of the imported one), imports inside functions
    too.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "edgeexport":
                names = (
                    [node.module]
                    if node.module != "edgeexport"
                    else [f"edgeexport.{a.name}" for a in node.names]
                )
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names if a.name.startswith("edgeexport.")]
            for name in names:
                yield path.relative_to(PACKAGE).as_posix(), room, name.split(".")[1]


def test_imports_run_one_way():
    back = [
        f"{file} imports {imported}"
        for file, room, imported in imports()
        if ORDER.index(imported) < ORDER.index(room)
    ]
    assert back == []


def test_every_room_has_its_place_and_few_files_stand_beside_them():
    rooms = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in PACKAGE.rglob("*.py")} - {
        "__init__"
    }
    assert rooms == set(ORDER)
    assert len(list(PACKAGE.glob("*.py"))) <= FILES_AT_THE_ROOT
    assert all(
        (folder / "__init__.py").is_file()
        for folder in PACKAGE.iterdir()
        if folder.is_dir() and folder.name != "__pycache__"
    )


def test_runtime_and_verification_work_from_the_file_alone():
    found = {
        file
        for file, room, imported in imports()
        if room in WITHOUT_THE_COMPILER and imported in ("compiler", "models", "build")
    }
    assert found == set(WITH_THE_COMPILER)


def test_models_and_targets_know_nothing_of_each_other():
    assert [
        file
        for file, room, imported in imports()
        if (room, imported) in (("models", "compiler"), ("compiler", "models"))
    ] == []


def test_public_names():
    assert edgeexport.__all__ == [
        "Dim",
        "EdgeExportError",
        "Finding",
        "Input",
        "Method",
        "Model",
        "Output",
        "Program",
        "Source",
        "Tolerance",
        "UsageError",
        "Weights",
        "build",
        "bundle",
        "check",
        "open",
    ]
    assert all(getattr(edgeexport, name) is not None for name in edgeexport.__all__)
    assert callable(edgeexport.build) and callable(edgeexport.open) and callable(edgeexport.check)


def test_help_models_and_mistyped_names_import_no_torch():
    """What makes them answer in a fraction of a second."""
    for command, exit_code in (
        (["--help"], 0),
        (["models"], 0),
        (["models", "--json"], 0),
        (["build", "--help"], 0),
        (["build", "sma2"], 2),
        (["build", "mvit", "--target", "coreml"], 2),
    ):
        code = f"import sys; sys.argv = ['edgeexport', *{command!r}]\nfrom edgeexport.cli.main import main\n"
        code += (
            "try:\n    main()\nfinally:\n    assert not {'torch', 'transformers', 'executorch'} &"
            " set(sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == exit_code and "AssertionError" not in done.stderr, done.stderr


def test_no_function_is_too_long():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno <= 80, f"{path.name}: {node.name}"


def test_importing_a_submodule_leaves_the_function_of_its_name():
    code = (
        "import edgeexport, edgeexport.build; from edgeexport.build import build_targets; assert"
        " callable(edgeexport.build), edgeexport.build"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


LIGHT = "torch executorch transformers torchvision skimage scipy jinja2".split()
LOWERING = "executorch.exir.program executorch.exir.capture transformers torchvision".split()


def imported_by(command, watched):
    """Which of `watched` the command line imported in its own process, and what it printed."""
    code = (
        f"import atexit, sys; sys.argv = ['edgeexport', *{[str(part) for part in command]!r}]\n"
        f"said = lambda: print('IMPORTED', *({set(watched)!r} & set(sys.modules)), file=sys.stderr)\n"
        "atexit.register(said)\nfrom edgeexport.cli.main import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.partition("IMPORTED")[2].split()


def test_what_each_command_imports(toy_artifact, tmp_path):
    """Importing torch takes a second or two, executorch.exir five more. Reading takes neither."""
    program, folder = toy_artifact.program_path, toy_artifact.path
    for command in (("show", program), ("show", folder), ("operators", folder), ("delta", folder, folder)):
        assert imported_by(command, [*LIGHT, *LOWERING]) in ([], ["executorch"]), command
    page = tmp_path / "page.html"
    assert imported_by(("report", folder, "--out", page), [*LIGHT, *LOWERING]) in (
        ["jinja2"],
        ["jinja2", "executorch"],
        ["executorch", "jinja2"],
    )


def test_running_a_program_imports_nothing_of_lowering(toy_artifact):
    """What the child of the checks does, in a process where it can be watched."""
    code = (
        "import sys; from edgeexport.verify.checks.process import main\n"
        "from edgeexport.runtime.program import open_program\n"
        f"program = open_program({str(toy_artifact.path)!r})\n"
        "from edgeexport.verify.checks import loads, operators, numerics, dynamic_bounds, memory\n"
        "found = [f for check in (loads, operators, numerics, dynamic_bounds, memory)"
        " for f in check.check(program)]\n"
        "assert found and all(f.passed for f in found)\n"
        f"print(*(set({LOWERING!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == [], done.stdout + done.stderr


def test_the_manifest_is_read_by_its_attributes():
    """Outside of artifact/manifest.py nobody knows that it is JSON."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
                continue
            name = getattr(node.value, "attr", getattr(node.value, "id", ""))
            if name == "manifest" and isinstance(node.slice.value, str):
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert found == []


def test_who_reads_first_can_lower_afterwards(toy_artifact):
    """What reading imports of ExecuTorch without its packages is nobody else's."""
    code = (
        "import sys\nfrom edgeexport.artifact.pte import read_methods\n"
        f"from pathlib import Path\nread_methods(Path({str(toy_artifact.program_path)!r}))\n"
        "assert not [name for name in sys.modules if name.startswith('executorch.exir')]\n"
        "import edgeexport.compiler.recipes.xnnpack, executorch.exir\n"
        "assert executorch.exir.to_edge_transform_and_lower\n"
        f"assert read_methods(Path({str(toy_artifact.program_path)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
