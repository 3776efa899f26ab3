"""The manifest's dataclasses: each is an object of the JSON Schema, and writes what it read."""

import copy
import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from importlib import resources

import pytest

from edgeexport.artifact import manifest
from edgeexport.artifact.folder import MANIFEST
from edgeexport.artifact.manifest import Manifest
from edgeexport.method import Finding
from edgeexport.samplers import Sampler

SCHEMA = json.loads(
    resources.files("edgeexport.artifact").joinpath("schemas/manifest.schema.json").read_text()
)
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}


def differences(kind, schema, place="manifest"):
    """Where a type and a schema do not allow the same."""
    if dataclasses.is_dataclass(kind):
        yield from _object(kind, schema, place)
        return
    of = typing.get_args(kind)
    if isinstance(kind, types.UnionType) and kind != Sampler:
        yield from _union(kind, schema, place)
    elif typing.get_origin(kind) is tuple:
        if schema.get("type") != "array":
            yield f"{place} is {schema.get('type')}, not an array"
            return
        count = None if of[-1] is ... else len(of)
        if {schema.get("minItems"), schema.get("maxItems")} != {count}:
            yield f"{place} has {schema.get('minItems')} to {schema.get('maxItems')} items, not {count}"
        yield from differences(of[0], schema["items"], f"{place}[]")
    elif typing.get_origin(kind) is Mapping:
        if schema.get("type") != "object" or "properties" in schema:
            yield f"{place} is not a mapping"
        elif of[1] is not typing.Any:
            yield from differences(of[1], schema["additionalProperties"], f"{place}.*")
    elif kind == Sampler:
        if (schema.get("type"), list(schema["properties"])) != ("object", ["kind"]):
            yield f"{place} is not an object with a kind"
    elif schema_types(schema) != {NAMES[kind]}:
        yield f"{place} is {schema_types(schema)}, not {NAMES[kind]}"


def _object(kind, schema, place):
    fields = manifest.fields_of(kind)
    if schema.get("type") != "object" or schema.get("additionalProperties") is not False:
        yield f"{place} is not an object of these properties only"
    for name in fields.keys() ^ schema["properties"].keys():
        yield f"{place}.{name} is only in the {'schema' if name in schema['properties'] else 'dataclass'}"
    needed = {name for name, field in fields.items() if not field.may_lack}
    for name in needed ^ set(schema["required"]):
        yield f"{place}.{name} must be there in the {'dataclass' if name in needed else 'schema'} only"
    for name in fields.keys() & schema["properties"].keys():
        field = fields[name]
        wanted = without_none(field.kind) if field.may_lack else field.kind
        yield from differences(wanted, schema["properties"][name], f"{place}.{name}")


def _union(kind, schema, place):
    """`X | None` is null or X, `int | str` is both."""
    some = without_none(kind)
    if some == kind:
        wanted = {NAMES[each] for each in typing.get_args(kind)}
        if schema_types(schema) != wanted:
            yield f"{place} is {schema_types(schema)}, not {wanted}"
        return
    if "null" not in schema_types(schema):
        yield f"{place} is never null"
        return
    others = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    yield from differences(some, others[0] if others else schema | {"type": "object"}, place)


def without_none(kind):
    rest = [each for each in typing.get_args(kind) if each is not types.NoneType]
    return rest[0] if len(rest) == 1 and isinstance(kind, types.UnionType) else kind


def schema_types(schema):
    """The types that a schema allows: as it says, or those of the values that it lists."""
    if "anyOf" in schema:
        return set().union(*map(schema_types, schema["anyOf"]))
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if listed is not None:
        return {NAMES[type(value)] for value in listed}
    said = schema["type"]
    return {said} if isinstance(said, str) else set(said)


def test_the_dataclasses_are_the_schema():
    assert list(differences(Manifest, SCHEMA)) == []


METHOD = ("methods", "items", "properties")


@pytest.mark.parametrize(
    ("path", "change", "said"),
    [
        (
            (),
            lambda s: s["properties"].update(later={"type": "string"}),
            "manifest.later is only in the schema",
        ),
        ((), lambda s: s["properties"].pop("target"), "manifest.target is only in the dataclass"),
        ((), lambda s: s["required"].remove("target"), "manifest.target must be there in the dataclass only"),
        (
            ("methods", "items"),
            lambda s: s["required"].append("forecast"),
            "manifest.methods[].forecast must be there in the schema only",
        ),
        (
            ("timings",),
            lambda s: s["properties"]["steps"]["items"]["properties"]["seconds"].update(type="string"),
            "manifest.timings.steps[].seconds is {'string'}, not number",
        ),
        (
            (*METHOD, "cases", "items", "properties", "setup", "anyOf", 0),
            lambda s: s["properties"].pop("seed"),
            "manifest.methods[].cases[].setup.seed is only in the dataclass",
        ),
        (
            (*METHOD, "dims", "items", "properties", "verified"),
            lambda s: s["anyOf"].pop(),
            "manifest.methods[].dims[].verified is never null",
        ),
        (
            (*METHOD, "delegation"),
            lambda s: s["properties"]["outside"]["items"]["properties"].update(of={"type": "null"}),
            "manifest.methods[].delegation.outside[].of is only in the schema",
        ),
        (
            ("files", "additionalProperties"),
            lambda s: s["properties"].pop("sha256"),
            "manifest.files.*.sha256 is only in the dataclass",
        ),
    ],
)
def test_a_change_of_one_side_only_is_found(path, change, said):
    schema = copy.deepcopy(SCHEMA)
    place = schema
    for step in ("properties", *path) if path else ():
        place = place[step]
    change(place)
    assert said in list(differences(Manifest, schema))


def test_a_read_manifest_is_written_byte_for_byte(toy_artifact, text_both):
    for artifact in (toy_artifact, *text_both):
        written = (artifact.path / MANIFEST).read_text()
        read = Manifest.parse(written, "here")
        assert read.text("here") == written and read == artifact.manifest


def test_what_artifacts_of_before_lack_is_not_written(toy_artifact):
    data = toy_artifact.manifest.to_json()
    del data["methods"][0]["forecast"], data["timings"]["check_peak_rss_bytes"]
    read = Manifest.from_json(data)
    assert read.methods[0].forecast is None and read.timings.check_peak_rss_bytes is None
    assert json.dumps(read.to_json()) == json.dumps(data)


def test_what_a_build_records_is_what_is_read_again(toy_artifact):
    """Nothing in memory is of another type than after reading: tuples, not lists."""
    (entry,) = toy_artifact.manifest.methods
    assert isinstance(entry.inputs, tuple) and isinstance(entry.inputs[0].shape, tuple)
    assert entry.ranges["batch"].sizes() == entry.dims[0].sizes
    assert toy_artifact.manifest.failed_checks == ()
    failed = [Finding("loads", None, False, "", ""), Finding("loads", None, False, "", "")]
    assert dataclasses.replace(toy_artifact.manifest, findings=failed).failed_checks == ("loads",)
