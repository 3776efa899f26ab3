"""Swift packages: what is in them, what is refused; their Swift parsed by its grammar, and held
against what it uses by a compiler where there is one.
"""

import json
import plistlib
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from manifests import method_of
from swift_tools import OURS, PIPELINES, swift_run, swiftc
from tokenizers import Tokenizer, decoders, models

from edgeexport.artifact.manifest import InputEntry, OutputEntry
from edgeexport.artifact.signatures import calls_of
from edgeexport.errors import UsageError
from edgeexport.samplers import OutputOf, Uniform
from edgeexport.ship.mobile import Request, damaged, package
from edgeexport.ship.mobile.platforms import ios

FLOATS, TOKENS = "float32", "int64"
METHODS = {
    "segmentation": {
        "encode_image": (
            [("image", FLOATS, ["batch", 3, 96, 96])],
            ["image_embedding", "high_res_s0", "high_res_s1"],
        ),
        "decode_masks": (
            [
                ("image_embedding", FLOATS, [1, 4, 4, 4]),
                ("points", FLOATS, [1, "batch", 2]),
                ("labels", "int32", [1, "batch"]),
            ],
            ["masks", "iou_scores", "object_score"],
        ),
    },
    "speech": {
        "log_mel": ([("sound", FLOATS, ["batch"])], ["features"]),
        "encode": ([("features", FLOATS, [1, 80, 30])], ["keys", "values"]),
        "decode_step": (
            [
                ("tokens", TOKENS, [1, 1]),
                ("position", TOKENS, [1]),
                ("keys", FLOATS, [1, 4]),
                ("values", FLOATS, [1, 4]),
            ],
            ["logits"],
        ),
    },
    "captions": {
        "encode_image": ([("image", FLOATS, ["batch", 3, 48, 48])], ["keys", "values"]),
        "decode_step": (
            [
                ("tokens", TOKENS, [1, 1]),
                ("position", TOKENS, [1]),
                ("keys", FLOATS, [1, 4]),
                ("values", FLOATS, [1, 4]),
            ],
            ["logits"],
        ),
    },
    "video": {"classify": ([("clips", FLOATS, ["batch", 3, 8, 32, 32])], ["logits"])},
    "pose": {
        "detect": (
            [("image", FLOATS, ["batch", 3, 160, 160])],
            ["boxes", "scores", "keypoints", "visibility"],
        )
    },
    None: {
        "init": (
            [("default", FLOATS, ["batch", 3]), ("in", "bool", [2]), ("self", "uint8", [1])],
            ["self", "class"],
        ),
        "self": ([("class", FLOATS, [1])], ["default"]),
        "where": ([("_", "int32", [1]), ("3d points", TOKENS, [1])], ["throws"]),
    },
}
"""Methods of each pipeline by name, with inputs (name, dtype, shape) and outputs; without one,
methods whose names are words of Swift.
"""


def made(artifact, pipeline, name="tried-model"):
    """A request for a package of a pipeline: the artifact with other facts."""
    manifest = replace(
        artifact.manifest,
        model=replace(artifact.manifest.model, name=name),
        methods=tuple(entry(*item) for item in METHODS[pipeline].items()),
    )
    changed = replace(artifact, manifest=manifest)
    return Request(changed, ios.app_id(None, name), pipeline, calls_of(changed), "1.5.1", ("A note.",))


def entry(method, tensors):
    """A method of a manifest. An input that an output of the same name goes before takes it."""
    earlier = {
        o: m
        for methods in METHODS.values()
        for m, (_, outputs) in methods.items()
        for o in outputs
        if m != method and method in methods
    }
    inputs, outputs = tensors
    return method_of(
        method,
        inputs=[
            InputEntry(
                name,
                shape,
                dtype,
                "a tensor\n*/ of \\(its) own",
                sample=OutputOf(earlier[name], name) if name in earlier else Uniform(),
            )
            for name, dtype, shape in inputs
        ],
        outputs=[OutputEntry(name, dtype=FLOATS, shape_at_least=(1, 2)) for name in outputs],
    )


@pytest.fixture(scope="module", params=[*PIPELINES, None], ids=str)
def written(request, toy_artifact, tmp_path_factory):
    """The package of each pipeline, and its request, without a record."""
    folder = tmp_path_factory.mktemp("packages") / str(request.param)
    wanted = made(toy_artifact, request.param)
    ios.write(wanted, folder)
    return wanted, folder


def swift_files(folder):
    return sorted(folder.rglob("*.swift"))


def parsed(text):
    """The tree of Swift's grammar."""
    tree_sitter = pytest.importorskip("tree_sitter")
    grammar = pytest.importorskip("tree_sitter_swift")
    return tree_sitter.Parser(tree_sitter.Language(grammar.language())).parse(text.encode()).root_node


def nodes(node):
    yield node
    for child in node.children:
        yield from nodes(child)


def wrong(root):
    """What the grammar did not take."""
    return [(node.start_point, node.text[:60]) for node in nodes(root) if node.is_error or node.is_missing]


def test_swift_of_packages_is_swift(written):
    files = swift_files(written[1])
    assert len(files) > 12
    assert {file.name: wrong(parsed(file.read_text())) for file in files} == {file.name: [] for file in files}


def test_the_grammar_notices_what_is_not_swift():
    assert wrong(parsed("func a( -> { }")) and wrong(parsed("struct A { func b( { } }"))


PLATFORM = frozenset(
    """
         Any Array Bool CodingKey ClosedRange CustomStringConvertible Codable Collection Data Decodable
    Decoder Dictionary Double Element Encoder Equatable Error Float Int Int32 Int64     LocalizedError
    MemoryLayout Range Result Self Sendable Sequence Set String UInt32 UInt64 UInt8 UTF8 Unicode
    UnsafeBufferPointer     UnsafeMutableRawBufferPointer Void Character ArraySlice Scalar
    GeneralCategory UnicodeScalarView BinaryInteger URL Bundle JSONDecoder NSError
    UnownedSerialExecutor DispatchSerialQueue Task CGImage CGContext CGRect CGFloat CGImageAlphaInfo
    CGColorSpaceCreateDeviceRGB CFString CFData CFDictionary     CGImageSourceCreateWithData
    CGImageSourceCreateThumbnailAtIndex AVAudioFile AVAudioFrameCount AVAudioFormat AVAudioConverter
    AVAudioPCMBuffer AVURLAsset     AVAssetImageGenerator CMTime ExecuTorch Module Value
    ValueConvertible XCTest XCTestCase XCTUnwrap XCTAssertEqual XCTAssertFalse XCTAssertTrue
    XCTAssertThrowsError Accelerate CoreGraphics Dispatch Foundation ImageIO AVFoundation
    PackageDescription Package Target PhotosUI SwiftUI     UniformTypeIdentifiers App Scene WindowGroup
    View VStack ScrollView Text Button Image Color Rectangle GeometryReader State PhotosPicker
    PhotosPickerItem     Linux Dependency
""".split()
)
"""Names of Swift, Apple's frameworks, ExecuTorch and XCTest that packages use."""


def capitalised(root):
    """Types that are used, and values and functions that are named like one; not what stands behind
    a dot.
    """
    for node in nodes(root):
        if node.type in ("type_identifier", "simple_identifier") and re.match(r"[A-Z]", node.text.decode()):
            yield node.text.decode()


DECLARATIONS = {
    "class_declaration",
    "protocol_declaration",
    "typealias_declaration",
    "type_parameter",
    "associatedtype_declaration",
}


def declared(root):
    """The names of types that are declared."""
    for node in nodes(root):
        if node.type in DECLARATIONS:
            found = next((c for c in node.children if c.type == "type_identifier"), None)
            if found is not None:
                yield found.text.decode()


def test_every_type_is_declared_or_the_platforms(written):
    request, folder = written
    roots = [parsed(file.read_text()) for file in swift_files(folder)]
    ours = {name for root in roots for name in declared(root)} | {ios._module(ios._api(request))}
    assert {"ModelError", "Methods", "TriedModel"} <= ours
    assert {name for root in roots for name in capitalised(root)} - ours - PLATFORM == set()


def test_every_resource_that_is_named_is_there(written):
    _, folder = written
    named = re.findall(r'\.copy\("(Resources/[^"]+)"\)', (folder / "Package.swift").read_text())
    home = folder / "Sources" / "TriedModelKit"
    assert sorted(named) == sorted(f"Resources/{file.name}" for file in (home / "Resources").iterdir())
    assert {"Resources/manifest.json", "Resources/PrivacyInfo.xcprivacy"} < set(named)


def test_the_privacy_manifest_is_a_property_list_that_says_nothing_is_collected(written):
    facts = plistlib.loads(
        (written[1] / "Sources" / "TriedModelKit" / "Resources" / "PrivacyInfo.xcprivacy").read_bytes()
    )
    assert (
        facts["NSPrivacyTracking"] is False
        and facts["NSPrivacyCollectedDataTypes"] == facts["NSPrivacyTrackingDomains"] == []
    )


def test_the_manifest_of_a_package_says_nothing_of_the_machine(written):
    text = (written[1] / "Sources" / "TriedModelKit" / "Resources" / "manifest.json").read_text()
    assert (
        {"program", "prepare", "methods"} < set(json.loads(text))
        and "versions" not in json.loads(text)
        and "/" not in json.loads(text)["program"]
    )


def test_the_runtime_is_pinned(written):
    text = (written[1] / "Package.swift").read_text()
    assert 'branch: "swiftpm-1.5.1"' in text and '"backend_xnnpack"' in text and '"kernels_optimized"' in text


def test_words_of_swift_are_no_names(toy_artifact):
    api = ios._api(made(toy_artifact, None))
    assert [f.name for f in api.functions] == ["init_", "self_", "where_"]
    assert [p.name for p in api.functions[0].parameters] == ["default_", "in_", "self_"]
    assert [p.name for p in api.functions[2].parameters] == ["value", "_3dPoints"]


@pytest.mark.parametrize(
    ("name", "type_name"),
    [
        ("self", "SelfModel"),
        ("tensor", "TensorModel"),
        ("mask", "MaskModel"),
        ("golden", "GoldenModel"),
        ("3", "Model3"),
    ],
)
def test_the_class_has_a_name_that_nothing_else_has(toy_artifact, name, type_name):
    assert ios._api(made(toy_artifact, None, name)).name == type_name


@pytest.mark.parametrize(
    "given", ["sam2", "com.exa mple.x", "com..x", "com.exämple.x", "com.example.x\n", "", "com/example.x"]
)
def test_what_is_no_bundle_identifier_is_refused(given):
    with pytest.raises(UsageError, match="no bundle identifier"):
        ios.app_id(given, "toy")


def test_bundle_identifiers():
    assert (
        ios.app_id("com.example.Sam-2", "toy") == "com.example.Sam-2"
        and ios.app_id(None, "whisper-tiny.en") == "com.example.whisper-tiny-en"
    )


def test_a_tokenizer_is_a_list_by_id():
    tokenizer = Tokenizer(models.WordLevel({"b": 3, "a": 0}, unk_token="a"))
    tokenizer.decoder = decoders.WordPiece()
    facts = json.loads(ios.tokenizer_by_id(tokenizer.to_str()))
    assert facts["model"]["vocab"] == ["a", None, None, "b"] and facts["decoder"]["type"] == "WordPiece"
    assert (
        "merges"
        not in json.loads(ios.tokenizer_by_id('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'))[
            "model"
        ]
    )


def test_strings_of_swift():
    assert ios._string('a"\\(b)\n') == '"a\\"\\\\(b)\\u{a}"'


def test_a_package_of_an_artifact(toy_artifact, tmp_path):
    done = package(toy_artifact.path, "ios", tmp_path / "toy", allow_random=True)
    assert done.pipeline is None and damaged(done.path) == []
    kit = next((done.path / "Sources").iterdir())
    assert not list(kit.glob("*Pipeline.swift")) and "RANDOM weights" in (done.path / "README.md").read_text()
    assert (
        kit / "Resources" / toy_artifact.program_path.name
    ).read_bytes() == toy_artifact.program_path.read_bytes()
    assert json.loads((done.path / "Tests" / "golden" / "golden.json").read_text())["cases"]


@pytest.fixture(scope="module")
def declarations(tmp_path_factory):
    """Compiled declarations of what packages use of Apple's frameworks and ExecuTorch.

    Skips where there is no compiler.
    """
    swift_run()
    folder = tmp_path_factory.mktemp("declarations")
    files = {file.name: file.read_text() for file in (OURS / "stubs").glob("*.swift")}
    for name in ("ExecuTorch", "CoreGraphics", "Accelerate", "ImageIO", "AVFoundation"):
        swiftc(
            folder,
            {f"{name}.swift": files[f"{name}.swift"]},
            "-emit-module",
            "-parse-as-library",
            "-I",
            ".",
            "-module-name",
            name,
        )
    return folder


@pytest.mark.toolchain
def test_the_compiler_takes_a_package_as_on_an_apple_device(written, declarations):
    """Every source of the library; its frameworks are declarations."""
    _, folder = written
    files = {file.name: file.read_text() for file in (folder / "Sources" / "TriedModelKit").glob("*.swift")}
    files["Module.swift"] = (OURS / "stubs" / "Module.swift").read_text()
    home = declarations / folder.name
    home.mkdir()
    for module in declarations.glob("*.swiftmodule"):
        shutil.copy(module, home)
    said = swiftc(
        home,
        files,
        "-typecheck",
        "-parse-as-library",
        "-strict-concurrency=complete",
        "-I",
        ".",
        "-module-name",
        "TriedModelKit",
    )
    assert "warning:" not in said, said


@pytest.mark.toolchain
def test_the_package_description_is_read(written):
    """By the package manager, on Linux: the pipelines alone."""
    done = subprocess.run(
        [*swift_run(), "swift", "package", "describe", "--type", "json"],
        cwd=written[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["name"] == "TriedModelKit"
