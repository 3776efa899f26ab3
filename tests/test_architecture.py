"""The shape of the package: imports run one way, the public names are these, commands answer at once."""

import ast
import subprocess
import sys
from pathlib import Path

import edgeexport

PACKAGE = Path(edgeexport.__file__).parent

# In the order in which data moves, read backwards: a module may import from its own row (within one folder) and from rows below.
ROWS = [
    {"__main__"},
    {"cli"},
    {"build", "parity", "bench", "profile", "serve", "bundle", "report", "selective_build", "delta"},
    {"delivery"},
    {"mobile"},
    {"checks"},
    {"catalog"},
    {"models", "recipes"},
    {"pose"},
    {"lower", "compile_server", "segmentation", "video", "speech", "captions", "decoding", "segmentation_methods"},
    {"etrecord"},
    {"sources"},
    {"capture", "passes", "runtime", "link", "split", "forecast"},
    {"programs", "calls", "program_file"},
    {"state"},
    {"rewrite", "artifact", "compare", "weights", "images", "audio", "model_schema", "samples"},
    {"method", "archive"},
    {"inputs", "boards", "measured"},
    {"cpu_isa"},
    {"errors", "guards", "progress", "torchvision_ops"},
]
FROM_THE_FILE_ALONE = {"runtime", "checks", "profile"}
NEVER_THERE = {"capture", "lower", "etrecord", "sources", "passes", "rewrite", "recipes", "models", "build"}


def imports():
    """(file, top part of the importing module, top part of the imported one), imports inside functions too."""
    for path in sorted(PACKAGE.rglob("*.py")):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "edgeexport":
                names = [node.module] if node.module != "edgeexport" else [f"edgeexport.{a.name}" for a in node.names]
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names if a.name.startswith("edgeexport.")]
            for name in names:
                yield path, part, name.split(".")[1]


def row(part):
    return next(i for i, parts in enumerate(ROWS) if part in parts)


def test_imports_run_one_way():
    wrong = []
    for path, part, imported in imports():
        allowed = part == imported or row(imported) > row(part)
        type_only = part == "catalog" and imported in ("lower", "compile_server")  # for a type annotation
        if not allowed and not type_only:
            wrong.append(f"{path.relative_to(PACKAGE)} imports {imported}")
    assert wrong == []


def test_every_module_has_its_place():
    parts = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in PACKAGE.rglob("*.py")} - {"__init__"}
    assert parts == set().union(*ROWS)


def test_runtime_and_checks_work_from_the_file_alone():
    assert [(p.name, i) for p, part, i in imports() if part in FROM_THE_FILE_ALONE and i in NEVER_THERE] == []


def test_public_names():
    assert edgeexport.__all__ == [
        "Dim", "EdgeExportError", "Finding", "Input", "Method", "Model", "Output", "Program", "Source", "Tolerance",
        "UsageError", "Weights", "build", "bundle", "check", "open",
    ]  # fmt: skip
    assert all(getattr(edgeexport, name) is not None for name in edgeexport.__all__)
    assert callable(edgeexport.build) and callable(edgeexport.open) and callable(edgeexport.check)


def test_help_models_and_mistyped_names_import_no_torch():
    """What makes them answer in a fraction of a second."""
    for command, exit_code in ((["--help"], 0), (["models"], 0), (["models", "--json"], 0), (["build", "--help"], 0), (["build", "sma2"], 2), (["build", "mvit", "--target", "coreml"], 2)):
        code = f"import sys; sys.argv = ['edgeexport', *{command!r}]\nfrom edgeexport.cli.main import main\n"
        code += "try:\n    main()\nfinally:\n    assert not {'torch', 'transformers', 'executorch'} & set(sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == exit_code and "AssertionError" not in done.stderr, done.stderr


def test_no_function_is_too_long():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno <= 80, f"{path.name}: {node.name}"


def test_importing_a_submodule_leaves_the_function_of_its_name():
    code = "import edgeexport, edgeexport.build; from edgeexport.build import build_targets; assert callable(edgeexport.build), edgeexport.build"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
