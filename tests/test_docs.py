"""README, CONTRIBUTING and the site's pages name only what is there: links, paths, commands and
options; and their figures are those of the committed files.
"""

import ast
import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from edgeexport.cli.main import COMMANDS, cli
from edgeexport.text import milliseconds

ROOT = Path(__file__).parent.parent
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SAMPLE = Path(__file__).parent / "bench_of_a_toy.json"
"""What `edgeexport bench` wrote of the toy model."""

LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
GENERATED = ("NAME", "TARGET")
"""What stands for a name of the reader's own in a path."""


def module(name):
    """A module of scripts/site."""
    sys.path.insert(0, str(ROOT / "scripts" / "site"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def anchors(text):
    """The anchors of a page's headings, as MkDocs makes them."""
    found = set()
    for heading in HEADING.findall(text):
        own = re.search(r"\{ *#([\w-]+) *\}", heading)
        words = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        found.add(own[1] if own else re.sub(r"[-\s]+", "-", words))
    return found


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(text):
    """Every `edgeexport COMMAND ...` of a text, in blocks of code and in lines of prose."""
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"(?:^ {4,}.*\n)+", text, re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *CODE.findall(without_code(text))]:
        if line.startswith("edgeexport "):
            yield shlex.split(line, comments=True)[1:]


def fields(schema):
    """The name of every field in a JSON Schema, however deep."""
    if isinstance(schema, dict):
        names = schema.get("properties", {})
        yield from names
        for value in [*names.values(), *(v for key, v in schema.items() if key != "properties")]:
            yield from fields(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from fields(each)


def pipeline_options():
    """What `edgeexport run` takes beside its own: the options that pipelines declare."""
    found = {"--threads", "--json", "--help"}
    for path in (ROOT / "edgeexport" / "pipelines").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Option":
                found.add(f"--{ast.literal_eval(node.args[0])}")
    return found


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    text = path.read_text()
    missing = []
    for link in LINK.findall(without_code(text)):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        written = target.name in ("contributing.md", "changelog.md")  # of the files at the root, by the hook
        if not (target.is_file() or written):
            missing.append(link)
        elif (
            anchor
            and "<!-- generated:" not in target.read_text()
            and anchor not in anchors(target.read_text())
        ):
            missing.append(link)
    assert missing == []


def unknown(text):
    """The commands and options in a text that are not there."""
    for name, *words in commands(text):
        if name.startswith("-"):
            continue
        if name not in COMMANDS:
            yield name
            continue
        params = cli.get_command(None, name).params
        known = {option for each in params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
        known |= pipeline_options() if name == "run" else set()
        yield from (
            f"{name} {word}" for word in words if word[:2] == "--" and word.split("=")[0] not in known
        )


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_command_and_option_is_there(path):
    assert [*unknown(path.read_text())] == []


def test_examples_in_the_help_are_commands():
    examples = [*commands(module("pages").command_line())]
    assert len(examples) > 2 * len(COMMANDS) and all("edgeexport" not in words for words in examples)
    assert [*unknown("".join(f"`edgeexport {shlex.join(words)}`\n" for words in examples))] == []


def test_a_command_or_option_that_is_not_there_is_found():
    block = "```\nedgeexport build sam2 --weight random\nedgeexport run x --image a.jpg\n```\n"
    text = f"`edgeexport bulid x`\n\n{block}"
    assert [*unknown(text)] == ["build --weight", "bulid"]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_path_of_the_project_is_there(path):
    """Those of CONTRIBUTING are whole; the other pages may leave the package's name out."""
    places = [ROOT] if path.name == "CONTRIBUTING.md" else [ROOT, ROOT / "edgeexport"]
    folders = "|".join(each.name for each in ROOT.iterdir() if each.is_dir() and each.name != "build")
    named = re.compile(rf"(?:{folders})/[\w./*-]+|[\w/.-]+\.(?:py|toml)")
    missing = []
    for code in CODE.findall(without_code(path.read_text())):
        code = code.partition(":")[0]
        if not named.fullmatch(code) or code.startswith("path/") or code == "my_phone.toml":
            continue
        pattern = re.sub("|".join(GENERATED), "*", code.rstrip("/"))
        if not any(next(place.glob(pattern), None) for place in places) and "/" in code:
            missing.append(code)
    assert missing == []


def test_every_script_is_there():
    named = {script for path in TEXTS for script in re.findall(r"scripts/[\w-]+", path.read_text())}
    assert named and [script for script in sorted(named) if not (ROOT / script).exists()] == []


def test_the_readmes_figures_are_those_of_the_committed_files():
    readme = module("readme")
    assert readme.current() == readme.README.read_text(), "scripts/docs writes them again"


def test_a_latency_file_becomes_a_table():
    figures = module("figures")
    found = json.loads(SAMPLE.read_text())
    text = figures.benches_text({"toy.json": found})
    row = found["rows"][0]
    eager, emitted = row["contenders"]
    assert "### toy" in text and f"Machine: {found['machine']['cpu']}, 2 cores" in text
    assert f"| {milliseconds(eager['p50_ms'])} |" in text
    assert f"({emitted['ratio']['median']:.2f} x, " in text
    assert f"Date: {found.get('date', 'not recorded')}" in text

    known = found | {"date": "2026-01-02T03:04:05Z", "command": "edgeexport bench build/toy/xnnpack-fp32"}
    broken = known | {"rows": [row | {"contenders": [eager, {"name": "compile", "error": "no | compiler"}]}]}
    text = figures.benches_text(
        {"one.json": known, "two.json": broken, "three.json": found | {"model": "other"}}
    )
    assert text.count("### toy") == 1 and text.count("### other") == 1
    assert "Date: 2026-01-02T03:04:05Z" in text and "edgeexport bench build/toy/xnnpack-fp32\n" in text
    assert "not measured: no \\| compiler" in text


def test_the_readme_says_the_costliest_methods_time_beside_eager():
    figures = module("figures")
    found = json.loads(SAMPLE.read_text())
    (row,) = found["rows"]
    eager, emitted = row["contenders"]
    slow = row | {
        "contenders": [eager, emitted | {"p50_ms": 1e3, "ratio": emitted["ratio"] | {"median": 0.25}}]
    }
    benches = {"a.json": found | {"model": "sam2-tiny", "rows": [row, slow]}}
    text = figures.readme_block(figures.read_reference(), benches)
    (line,) = [line for line in text.splitlines() if line.startswith("| `sam2` |")]
    assert line.count("0.25 x eager's time") == 1 and "130 MB, error `1.7e-05`" in line
    on_a_board = {"a.json": benches["a.json"] | {"board": "raspberry_pi_5"}}
    assert "eager's time" not in figures.readme_block(figures.read_reference(), on_a_board)


def test_the_tables_have_every_figure_of_the_reference():
    figures = module("figures")
    reference = figures.read_reference()
    methods, counts = figures.methods_table(reference), figures.instructions_table(reference)
    for key, artifact in reference["artifacts"].items():
        model = key.split("/")[0]
        assert all(f"| `{model}` | `{name}` |" in methods for name in artifact["methods"])
        assert f"| `{model}` | " in figures.sizes_table(reference)
    for board, calls in reference["instructions"].items():
        assert f"`{board}`" in counts and all(f"{count / 1e6:,.1f}" in counts for count in calls.values())


def test_the_artifact_format_has_every_schema_and_field():
    pages = module("pages")
    folder = ROOT / "edgeexport" / "artifact" / "schemas"
    assert {path.name.removesuffix(".schema.json") for path in folder.glob("*.json")} == set(pages.SCHEMAS)
    text = pages.artifact_format()
    shown = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    for path in folder.glob("*.json"):
        assert {*fields(json.loads(path.read_text()))} <= shown
    assert set(re.findall(r"\(#([\w-]+)\)", text)) <= set(re.findall(r"\{ #([\w-]+) \}", text))


def test_the_command_line_page_has_every_command_and_option():
    text = module("pages").command_line()
    for name in COMMANDS:
        assert f"## {name}\n" in text and f"edgeexport {name}" in text
    assert (
        "| `--board` | NAME: " in text
        and "| `--batching / --no-batching` |" in text
        and "edgeexport build sam2 --target xnnpack --weights random\n" in text
    )


def test_the_python_page_has_every_public_name():
    import edgeexport

    pages = module("pages")
    text = pages.python_api()
    assert [name for name in edgeexport.__all__ if f'heading: "edgeexport.{name}"' not in text] == []

    for name in pages.BESIDE:
        place, _, own = name.rpartition(".")
        (path,) = ROOT.glob(f"{place.replace('.', '/')}.py")
        assert re.search(rf"^(?:class|def) {own}\b", path.read_text(), re.MULTILINE), name
