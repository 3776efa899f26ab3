"""The page about artifacts: everything is in it, nothing is fetched, wrong files are refused, and a
browser shows it well.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
from in_process import run_command

import edgeexport
from edgeexport.artifact.manifest import from_json
from edgeexport.artifact.pte_memory_plan import Lifetime, MemoryPlan, read_memory_plans
from edgeexport.errors import ArtifactError, UsageError
from edgeexport.method import Finding
from edgeexport.verify.report import program_sha256, report
from edgeexport.verify.report.app_code import app_code
from edgeexport.verify.report.latency import ratios
from edgeexport.verify.report.memory import plan_view
from edgeexport.verify.report.svg import Axis


def contender(name, middle_ms, ratio):
    samples = sorted(middle_ms * (0.9 + 0.02 * n) for n in range(11))
    return {
        "name": name,
        "load_ms": None if name == "eager" else 40.0,
        "first_ms": 2 * middle_ms,
        "samples_ms": samples,
        "p50_ms": samples[5],
        "p90_ms": samples[9],
        "p95_ms": samples[9],
        "p99_ms": samples[10],
        "min_ms": samples[0],
        "mean_ms": middle_ms,
        "ratio": ratio and {"median": ratio, "low": 0.9 * ratio, "high": 1.1 * ratio},
    }


def bench_of(artifact):
    """A latency file about an artifact's weights."""
    method = artifact.manifest.methods[0]
    row = {
        "method": method.name,
        "sizes": method.cases[0].sizes,
        "threads": 2,
        "rounds": 11,
        "baseline": "eager",
        "contenders": [contender("eager", 10.0, None), contender(artifact.side, 6.1, 0.61)],
    }
    memory = dict.fromkeys(
        ("rss_before_bytes", "rss_loaded_bytes", "rss_steady_bytes", "peak_rss_bytes", "planned_bytes"),
        10_000_000,
    )
    return {
        "format": 1,
        "kind": "bench",
        "model": artifact.manifest.model.name,
        "weights_sha256": artifact.manifest.weights.sha256,
        "machine": {"cpu": "A CPU of 2026", "cores": 2, "memory_bytes": 8_000_000_000, "system": "Linux"},
        "versions": {"torch": "2.13.0"},
        "noise": [{"threads": 2, "calibration_ms": {"p50": 5.0, "p5": 4.9, "p95": 5.6}, "spread": 0.14}],
        "rows": [row],
        "memory": [{"artifact": artifact.side, "method": method.name, "sizes": row["sizes"], **memory}],
    }


def profile_of(artifact):
    """A profile of an artifact's program."""
    operators = [
        {
            "operator": "xnnpack:fully_connected",
            "delegated": True,
            "calls": 4,
            "time_ms": 8.0,
            "share": 0.8,
            "reason": None,
            "fix": None,
            "lines": [],
        },
        {
            "operator": "aten::cumsum.out",
            "delegated": False,
            "calls": 2,
            "time_ms": 2.0,
            "share": 0.2,
            "reason": "no rule for <cumsum>",
            "fix": "write a pass",
            "lines": [{"source": "toy.py:31", "module": "head", "time_ms": 2.0}],
        },
    ]
    method = {
        "method": artifact.manifest.methods[0].name,
        "sizes": {},
        "total_ms": 10.4,
        "accounted_ms": 10.0,
        "operators": operators,
    }
    return {
        "format": 1,
        "kind": "profile",
        "model": artifact.manifest.model.name,
        "program_sha256": program_sha256(artifact),
        "methods": [method],
    }


def findings_of(artifact):
    """What `edgeexport check --board ... --json` prints of an artifact that does not fit."""
    about = {"artifact": artifact.side, "program_sha256": program_sha256(artifact)}
    finding = {
        "check": "board",
        "method": None,
        "passed": False,
        "measured": "file 9.9 MB",
        "limit": "<= 1 MB on tiny_board",
        "message": "Too <large>.",
    }
    return {"passed": False, "findings": [finding | {"details": {"board": "tiny_board"}} | about]}


@pytest.fixture
def save(tmp_path):
    """Writes a value as JSON, and says where."""

    def write(name, value):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return write


@pytest.fixture(scope="module")
def pages(toy_artifact, text_both, tmp_path_factory):
    """The page of one artifact with everything, and of two of another model with their latency, in
    a folder.
    """
    folder = tmp_path_factory.mktemp("pages")
    files = {}
    for name, content in (
        ("bench", bench_of(toy_artifact)),
        ("profile", profile_of(toy_artifact)),
        ("findings", findings_of(toy_artifact)),
        ("text", bench_of(text_both[0])),
    ):
        files[name] = folder / f"{name}.json"
        files[name].write_text(json.dumps(content))
    one = report(
        [toy_artifact.path], [files["bench"]], [files["profile"]], [files["findings"]], folder / "one.html"
    )
    several = report(
        [*(a.path for a in text_both), toy_artifact.path],
        [files["text"]],
        findings=[files["findings"]],
        out=folder / "several.html",
    )
    return {"one": one, "several": several}


def text_of(page):
    """What a reader sees, with white space as one blank."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page.read_text())))


def test_nothing_is_fetched_and_nothing_runs(pages):
    for page in pages.values():
        content = page.read_text()
        assert (
            "<script" not in content
            and "<link" not in content
            and "@import" not in content
            and "url(" not in content
        )
        targets = re.findall(r"""(?:src|href|action|data|poster|srcset)\s*=\s*["']([^"']*)""", content)
        assert targets and all(target.startswith("#") for target in targets)
        assert {target[1:] for target in targets} <= set(re.findall(r'id="([^"]+)"', content)), (
            "every link leads somewhere"
        )
        assert re.search(r'<html lang="en">', content)


def test_headings_are_in_order_and_plots_have_a_text(pages):
    for page in pages.values():
        content = page.read_text()
        levels = [int(level) for level in re.findall(r"<h([1-6])", content)]
        assert (
            levels[0] == 1
            and levels.count(1) == 1
            and all(after <= before + 1 for before, after in zip(levels, levels[1:]))
        )
        assert all("aria-label=" in tag for tag in re.findall(r'<svg class="plot"[^>]*>', content))


def test_every_finding_and_fact_is_in_the_page(pages, toy_artifact):
    seen = text_of(pages["one"])
    manifest = toy_artifact.manifest
    later = (from_json(Finding, finding) for finding in findings_of(toy_artifact)["findings"])
    for finding in (*manifest.findings, *later):
        for said in (finding.measured, finding.limit, finding.message):
            assert re.sub(r"\s+", " ", said) in seen
    for said in (
        manifest.weights.sha256,
        program_sha256(toy_artifact),
        "The weights are random (seed 0)",
        "torch 2.13",
        "batch 1 to 17",
        "1 check failed",
    ):
        assert said in seen, said
    assert seen.index("Too <large>.") < seen.index("that passed"), "failed ones first"
    numerics = [f for f in manifest.findings if f.check == "numerics"]
    assert seen.count(" dB ") >= len(numerics) >= 5


def test_an_answer_that_is_no_number_and_a_case_that_does_not_run_are_shown(toy_copy, tmp_path):
    manifest = json.loads((toy_copy / "manifest.json").read_text())
    nan, stopped = [f for f in manifest["findings"] if f["check"] == "numerics"][:2]
    nan |= {"passed": False, "message": "The file does not say what eager said."}
    nan["details"]["logits"] = {
        "max_abs": float("nan"),
        "max_abs_relative": float("nan"),
        "sqnr_db": float("nan"),
    }
    stopped |= {
        "passed": False,
        "measured": "batch=2 structured: it does not run",
        "message": "error 0x10",
        "details": {},
    }
    (toy_copy / "manifest.json").write_text(json.dumps(manifest))
    page = report([toy_copy], out=tmp_path / "page.html")
    seen = text_of(page)
    assert (
        seen.count("batch=2 structured: it does not run") == 2
        and "batch=1 structured FAILED" in seen
        and "2 checks failed" in seen
    )
    assert "not a number" in seen and 'class="bar failed"' in page.read_text() and "error 0x10" in seen


def test_latency_profile_and_boards_are_in_the_page(pages):
    seen = text_of(pages["one"])
    for said in (
        "A CPU of 2026",
        "a spread of 14 %",
        "0.61 (0.55 to 0.67)",
        "no rule for <cumsum>",
        "write a pass",
        "toy.py:31",
        "8 GB",
    ):
        assert said in seen, said
    assert pages["one"].read_text().count('class="sample') == 22
    several = text_of(pages["several"])
    assert (
        "encode, 2 threads: x eager" in several
        and "2 models" in several
        and "xnnpack-fp32" in several
        and "aoti-fp32" in several
    )
    assert (
        several.count("tiny_board: does NOT fit") == 1
        and pages["several"].read_text().count("<th>from</th>") == 2
    ), "said of the one that was checked"


def test_ratios_are_by_contender(toy_artifact):
    assert ratios(bench_of(toy_artifact)) == [
        ("classify, batch = 1, 2 threads: x eager", {"xnnpack-fp32": "0.61 (0.55 to 0.67)"})
    ]


def test_the_memory_plan_reaches_the_planned_bytes(toy_artifact, text_both):
    for artifact in (toy_artifact, text_both[0]):
        for plan in read_memory_plans(artifact.program_path):
            assert (
                plan_view(plan).top_bytes
                == plan.planned_bytes
                == artifact.methods[plan.method].planned_memory_bytes
            )
            for arena, size in plan.arena_bytes.items():
                end = max((t.offset + t.size_bytes for t in plan.tensors if t.arena == arena), default=0)
                assert end <= size and (size - end == 64 or artifact is not toy_artifact), (
                    "the planner pads by 64 bytes"
                )
            assert 0 < max(plan.live_bytes()) <= plan.planned_bytes
            assert all(0 <= t.first <= t.last < len(plan.instructions) for t in plan.tensors)


def test_state_lives_through_the_whole_plan(text_both):
    plans = {plan.method: plan for plan in read_memory_plans(text_both[0].program_path)}
    state = [t for t in plans["decode_step"].tensors if t.arena == 2]
    assert sum(t.size_bytes for t in state) == sum(
        4 * s.shape[0] * s.shape[1] * s.shape[2] for s in text_both[0].methods["decode_step"].state
    )
    assert {(t.first, t.last) for t in state} == {(0, len(plans["decode_step"].instructions) - 1)}
    assert not plan_view(plans["encode"]).holds_state and plan_view(plans["encode"]).state_bytes > 0


def test_tensors_that_share_memory_count_once_and_many_are_cut():
    tensors = (
        Lifetime(1, 0, 100, 0, 1, "float32", (25,)),
        Lifetime(1, 50, 50, 1, 2, "float32", (12,)),
        Lifetime(2, 0, 30, 0, 2, "float32", (7,)),
    )
    plan = MemoryPlan("m", ("a", "b", "c"), {1: 164, 2: 30}, tensors)
    assert plan.live_bytes() == [130, 130, 80]
    many = tuple(Lifetime(1, 1000 * n, 1000 if n % 2 else 1, n, n, "uint8", (1000,)) for n in range(5000))
    view = plan_view(MemoryPlan("m", ("x",) * 5000, {1: 5_000_000}, many))
    assert (
        len(str(view.plot)) < 100_000
        and view.left_out == "5000 tensors, the small and short-lived ones, none larger than 1 kB"
    )
    large = tuple(Lifetime(1, 0, 5_000_000, n, n, "uint8", (5,)) for n in range(5000))
    assert len(str(plan_view(MemoryPlan("m", ("x",) * 5000, {1: 5_000_000}, large)).plot)) < 120_000


def test_axes_have_round_ticks_and_keep_outliers_at_the_edge():
    assert Axis(0, 95).ticks() == [0, 20, 40, 60, 80] and Axis(1e-8, 1e-3, True).ticks() == [
        10.0**e for e in range(-8, -2)
    ]
    assert Axis(1e-8, 1e-4, True).percent(1e-6) == 50 and Axis(1e-8, 1e-4, True).percent(0) == 0
    assert Axis(0, 10).percent(50) == 100 and Axis(0, 10).percent(float("nan")) == 100


def damaged(value, path, new):
    """A copy of `value` with what is at `path` replaced; an ellipsis deletes it."""
    copy = json.loads(json.dumps(value))
    *parents, last = path
    place = copy
    for part in parents:
        place = place[part]
    if new is ...:
        del place[last]
    else:
        place[last] = new
    return copy


@pytest.mark.parametrize(
    ("path", "new", "said"),
    [
        (
            ("rows", 0, "contenders", 1, "p95_ms"),
            "fast",
            r"at rows/0/contenders/1/p95_ms: 'fast' is not of type 'number'",
        ),
        (("rows", 0, "contenders", 0, "samples_ms"), [], r"at rows/0/contenders/0/samples_ms: \[\]"),
        (("noise",), ..., r"at the top: 'noise' is a required property"),
        (("kind",), "profile", r"at kind: 'bench' was expected"),
    ],
)
def test_a_malformed_latency_file_is_refused_with_the_place(toy_artifact, save, tmp_path, path, new, said):
    file = save("b.json", damaged(bench_of(toy_artifact), path, new))
    with pytest.raises(UsageError, match=r"b\.json is not a bench file that this version reads: " + said):
        report([toy_artifact.path], [file], out=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("path", "new", "said"),
    [
        (
            ("methods", 0, "operators", 1, "delegated"),
            "no",
            r"at methods/0/operators/1/delegated: 'no' is not of type 'boolean'",
        ),
        (
            ("methods", 0, "operators", 0, "calls"),
            ...,
            r"at methods/0/operators/0: 'calls' is a required property",
        ),
        (("program_sha256",), "abc", r"at program_sha256: 'abc' does not match"),
    ],
)
def test_a_malformed_profile_is_refused_with_the_place(toy_artifact, save, tmp_path, path, new, said):
    file = save("p.json", damaged(profile_of(toy_artifact), path, new))
    with pytest.raises(UsageError, match=r"p\.json is not a profile file that this version reads: " + said):
        report([toy_artifact.path], profiles=[file], out=tmp_path / "page.html")


def test_what_is_no_json_or_not_there_is_named(toy_artifact, save, tmp_path):
    with pytest.raises(UsageError, match=r"b\.json is not JSON \(.*line 1"):
        report([toy_artifact.path], [save("b.json", "{broken")], out=tmp_path / "page.html")
    with pytest.raises(UsageError, match=r"nowhere\.json cannot be read \(No such file"):
        report([toy_artifact.path], [tmp_path / "nowhere.json"], out=tmp_path / "page.html")
    with pytest.raises(UsageError, match="is not JSON"):
        (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
        report([toy_artifact.path], [tmp_path / "binary.json"], out=tmp_path / "page.html")


def test_files_about_other_weights_or_another_program_are_refused(toy_artifact, text_both, save, tmp_path):
    out = tmp_path / "page.html"
    other = save("b.json", bench_of(toy_artifact) | {"weights_sha256": "0" * 64})
    with pytest.raises(
        UsageError,
        match=(
            r"b\.json measured toy with weights 000000000000\.\.\.: no artifact here is that. They are: .*toy"
            r" xnnpack-fp32"
        ),
    ):
        report([toy_artifact.path], [other], out=out)
    with pytest.raises(UsageError, match=r"p\.json profiled a program .* of toy-text: no artifact here"):
        report([toy_artifact.path], profiles=[save("p.json", profile_of(text_both[0]))], out=out)
    with pytest.raises(UsageError, match=r"f\.json checked xnnpack-fp32 \(program .*no artifact here"):
        report([toy_artifact.path], findings=[save("f.json", findings_of(text_both[0]))], out=out)
    with pytest.raises(UsageError, match=r"g\.json checked aoti-fp32"):
        report(
            [toy_artifact.path],
            findings=[
                save("g.json", damaged(findings_of(toy_artifact), ("findings", 0, "artifact"), "aoti-fp32"))
            ],
            out=out,
        )
    assert not out.exists()


def test_a_page_is_replaced_when_asked_and_nothing_else_is(toy_copy, tmp_path):
    page = report([toy_copy])
    assert page == toy_copy.parent / "report.html"
    with pytest.raises(ArtifactError, match="exists already. Give --force"):
        report([toy_copy])
    page.write_text(page.read_text() + "<!-- old -->")
    assert report([toy_copy], force=True) == page and "<!-- old -->" not in page.read_text()
    mine = tmp_path / "mine.html"
    mine.write_text("<html>my own page</html>")
    with pytest.raises(ArtifactError, match="is not a page of `edgeexport report`"):
        report([toy_copy], out=mine, force=True)
    assert mine.read_text() == "<html>my own page</html>" and not list(tmp_path.glob(".*partial*"))


def test_the_command(toy_artifact, save, tmp_path):
    def run(*arguments):
        return run_command("report", *arguments)

    out = tmp_path / "page.html"
    done = run(toy_artifact.path, "--bench", save("b.json", bench_of(toy_artifact)), "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"path": str(out), "size_bytes": out.stat().st_size}
    again = run(toy_artifact.path, "--out", out)
    assert again.returncode == 2 and "--force" in again.stderr and "Traceback" not in again.stderr
    assert "Example:" in run("--help").stdout


def test_an_archive_is_taken_as_folders_are(text_both, tmp_path):
    archive = edgeexport.bundle([a.path for a in text_both], tmp_path / "text.pt2")
    page = report([archive])
    assert page == tmp_path / "report.html"
    seen = text_of(page)
    assert f"{archive}/xnnpack-fp32" in seen and f"{archive}/aoti-fp32" in seen


def code_of(artifact):
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("edgeexport.verify.report", "."),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return app_code(artifact, environment)


def test_the_python_code_runs(toy_artifact, text_both):
    for artifact in (toy_artifact, *text_both):
        names = {}
        exec(code_of(artifact)["Python"], names)
        last = artifact.manifest.methods[-1]
        logits = names.get(f"{last.name}_logits", names.get("logits"))
        assert tuple(logits.shape) == last.outputs[0].shape_at_least


def test_the_code_names_files_methods_shapes_and_shared_state(toy_artifact, text_both):
    code = code_of(toy_artifact)
    assert list(code) == ["Kotlin", "Swift", "C++", "Python"]
    assert (
        'Module.load("toy.pte"' in code["Kotlin"]
        and "Tensor.fromBlob(FloatArray(768), longArrayOf(1, 3, 16, 16))" in code["Kotlin"]
    )
    assert 'try module.execute("classify", [' in code["Swift"] and "shape: [1, 3, 16, 16]" in code["Swift"]
    assert "share_memory_arenas" not in code["C++"]
    edge, server = map(code_of, text_both)
    assert (
        "share_memory_arenas=*/true" in edge["C++"]
        and '"prefill"' not in edge["Kotlin"] + edge["Swift"]
        and "begin with decode_step at position 0" in edge["Kotlin"]
    )
    assert (
        list(server) == ["Python", "C++"]
        and 'AOTIModelPackageLoader prefill_model("toy-text.pt2", "prefill")' in server["C++"]
    )


@pytest.mark.toolchain
@pytest.mark.skipif(shutil.which("g++") is None, reason="not installed: g++ (apt install g++)")
def test_the_cpp_code_compiles(toy_artifact, text_both, tmp_path):
    import importlib.util

    root = Path(importlib.util.find_spec("executorch").submodule_search_locations[0]) / "include"
    for artifact in (toy_artifact, text_both[0]):
        source = tmp_path / "app.cpp"
        source.write_text(code_of(artifact)["C++"])
        headers = [
            f"-I{root}",
            f"-I{root / 'executorch/runtime/core/portable_type/c10'}",
            "-DC10_USING_CUSTOM_GENERATED_MACROS",
        ]
        done = subprocess.run(
            ["g++", "-std=c++17", "-fsyntax-only", "-w", *headers, str(source)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


MEASURE = """<script>
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(d => { d.open = true; });
  const page = document.documentElement;
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, pre") && e.getBoundingClientRect().right > innerWidth + 0.5);
  const style = getComputedStyle(document.body);
  const facts = { width: innerWidth, scrollWidth: page.scrollWidth, height: page.scrollHeight, ink: style.color, page: style.backgroundColor,
                  wide: wide.slice(0, 5).map(e => e.tagName + "." + (e.className.baseVal ?? e.className) + " " + e.textContent.trim().slice(0, 40)) };
  document.title = JSON.stringify(facts);
});
</script></body>"""  # noqa: E501
SCHEMES = {"light": 1, "dark": 0}
"""How Chromium calls them."""


def look(page, width, scheme, folder):
    """What Chromium says about a copy of the page in a window of that width, all folded parts
    open: Chromium's own window has a least width, a frame has none.
    """
    copy, frame = folder / "copy.html", folder / "frame.html"
    copy.write_text(page.read_text().replace("</body>", MEASURE))
    frame.write_text(
        '<body style="margin:0"><iframe id="f" src="copy.html"'
        f' style="border:0;width:{width}px;height:3000px"></iframe><script>onload = () => setTimeout(() => {{'
        " document.body.dataset.facts = f.contentDocument.title; }, 300);</script></body>"
    )
    common = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--window-size={max(width, 500)},3000",
        "--virtual-time-budget=5000",
    ]
    done = subprocess.run(
        [*common, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=120
    )
    facts = re.search(r'data-facts="([^"]*)"', done.stdout)
    assert facts, done.stderr[-2000:]
    subprocess.run(
        [*common, f"--screenshot={folder / 'page.png'}", "--hide-scrollbars", frame.as_uri()],
        capture_output=True,
        timeout=120,
        check=True,
    )
    return json.loads(html.unescape(facts.group(1))), folder / "page.png"


@pytest.mark.toolchain
@pytest.mark.skipif(shutil.which("chromium") is None, reason="not installed: chromium (apt install chromium)")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", ["one", "several"])
def test_the_page_fits_a_phone_and_a_desk_in_light_and_dark(pages, name, width, scheme, tmp_path):
    from PIL import Image

    facts, picture = look(pages[name], width, scheme, tmp_path)
    assert facts["width"] == width and facts["scrollWidth"] <= width and facts["wide"] == [], facts
    assert facts["height"] > 3000
    with Image.open(picture) as image:
        pixels = image.convert("L").crop((0, 0, width, image.height))
        assert len(pixels.getcolors(256) or [0] * 256) > 40, "not blank"
        assert (pixels.getpixel((2, 2)) > 200) == (scheme == "light")
    light, dark = (
        sum(map(int, re.findall(r"\d+", facts[part])[:3]))
        for part in (("page", "ink") if scheme == "light" else ("ink", "page"))
    )
    assert light > 600 and dark < 150
