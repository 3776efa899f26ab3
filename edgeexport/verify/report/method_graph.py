"""The methods of a program as boxes: what each takes and returns, where it comes from, which state
they share.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from edgeexport import text
from edgeexport.artifact.manifest import InputEntry, Manifest, MethodEntry
from edgeexport.samplers import OutputOf
from edgeexport.verify.report.svg import Plot

HEAD_PX, ROW_PX, GAP_PX, LANE_PX = 30, 34, 22, 13
MEANING = 84
"""Characters of a tensor's meaning that are shown, where there is room for it."""


@dataclass(frozen=True)
class Tensor:
    """An input or output, or several of one kind that are numbered."""

    name: str
    facts: str
    meaning: str = ""
    source: tuple[str, str] | None = None


@dataclass(frozen=True)
class Box:
    """A method, or the state that methods share."""

    name: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    shares: tuple[str, ...] = ()
    """Of state: the methods that have it."""

    @property
    def height_px(self) -> float:
        return HEAD_PX + ROW_PX * max(len(self.inputs) + len(self.outputs), 1 if self.shares else 0) + 6


@dataclass
class _Layout:
    """Where each row of each box is, from the top."""

    top: dict[str, float] = field(default_factory=dict)
    row: dict[tuple[str, str, str], float] = field(default_factory=dict)
    height: float = 0.0


@dataclass(frozen=True)
class MethodGraph:
    """The drawing, and how many lanes of arrows it needs at its left and right."""

    plot: Markup
    left_px: int
    right_px: int


def method_graph(manifest: Manifest) -> MethodGraph:
    """Boxes under one another in the order of the data; arrows from an output to the inputs that it
    becomes.
    """
    boxes = [_method_box(m) for m in manifest.methods] + _state_boxes(manifest.methods)
    layout = _laid_out(boxes)
    flows, shared = _flows(boxes), [(state.name, method) for state in boxes for method in state.shares]
    described = "; ".join(
        f"{b.name} takes {', '.join(t.name for t in b.inputs) or 'nothing'} and returns"
        f" {', '.join(t.name for t in b.outputs)}"
        for b in boxes
        if not b.shares
    )
    plot = Plot(layout.height, f"Methods: {described}")
    for box in boxes:
        _draw_box(plot, box, layout)
    for lane, (start, ends) in enumerate(flows.items()):
        _draw_flow(plot, layout, start, ends, lane)
    for lane, (state, method) in enumerate(shared):
        _draw_shared(plot, layout, state, method, lane)
    return MethodGraph(
        plot.markup(), LANE_PX * len(flows) + 14 if flows else 0, LANE_PX * len(shared) + 14 if shared else 0
    )


def merged(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Neighbours of one kind whose names differ in a number only become one: keys_0 to keys_3."""
    groups: list[list[Tensor]] = []
    for tensor in tensors:
        if groups and _kind(groups[-1][0]) == _kind(tensor):
            groups[-1].append(tensor)
        else:
            groups.append([tensor])
    return tuple(_one(group) for group in groups)


def _kind(tensor: Tensor) -> tuple:
    source = tensor.source and (tensor.source[0], re.sub(r"\d+", "#", tensor.source[1]))
    return re.sub(r"\d+", "#", tensor.name), tensor.facts, source


def _one(group: Sequence[Tensor]) -> Tensor:
    first, last = group[0], group[-1]
    if len(group) == 1 or "#" not in _kind(first)[0]:
        return first
    return Tensor(
        f"{first.name} to {last.name}", f"{len(group)} x {first.facts}", first.meaning, first.source
    )


def _method_box(method: MethodEntry) -> Box:
    dims = {d.name: d.bounds for d in method.dims}
    inputs = merged(_input(spec, dims) for spec in method.inputs)
    outputs = merged(
        Tensor(o.name, f"{o.dtype} {text.shape(o.shape_at_least)}", o.meaning) for o in method.outputs
    )
    return Box(method.name, inputs, outputs)


def _input(spec: InputEntry, dims: Mapping[str, tuple[int, int]]) -> Tensor:
    sizes = [
        (
            f"{s} {dims[s][0]} to {dims[s][1]}"
            if isinstance(s, str) and dims[s][0] < dims[s][1]
            else dims[s][0]
            if isinstance(s, str)
            else s
        )
        for s in spec.shape
    ]
    sample = spec.sample
    source = (sample.method, sample.output) if isinstance(sample, OutputOf) else None
    return Tensor(spec.name, f"{spec.dtype} {text.shape(sizes)}", spec.meaning, source)


def _state_boxes(methods: Sequence[MethodEntry]) -> list[Box]:
    """One for each set of buffers that the same methods change."""
    owners: dict[str, list[str]] = {}
    buffers = {}
    for method in methods:
        for state in method.state:
            owners.setdefault(state.name, []).append(method.name)
            buffers[state.name] = state
    sets = dict.fromkeys(tuple(names) for names in owners.values())
    found = []
    for shares in sets:
        mine = [
            Tensor(name, f"{buffers[name].dtype} {text.shape(buffers[name].shape)}")
            for name, names in owners.items()
            if tuple(names) == shares
        ]
        rows = tuple(sorted({_kind(t): t for t in mine}.values(), key=lambda t: t.name))
        numbered = [
            Tensor(re.sub(r"\d+", "N", t.name), f"{sum(_kind(o) == _kind(t) for o in mine)} x {t.facts}")
            for t in rows
        ]
        found.append(Box("state that is kept between calls", inputs=tuple(numbered), shares=shares))
    return found


def _laid_out(boxes: Sequence[Box]) -> _Layout:
    layout = _Layout()
    for box in boxes:
        layout.top[box.name] = layout.height
        for index, (kind, tensor) in enumerate(
            [("in", t) for t in box.inputs] + [("out", t) for t in box.outputs]
        ):
            layout.row[box.name, kind, tensor.name] = layout.height + HEAD_PX + ROW_PX * index + ROW_PX / 2
        layout.height += box.height_px + GAP_PX
    layout.height -= GAP_PX - 2
    return layout


def _flows(boxes: Sequence[Box]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Ends of the arrows by their start: (method, output) to (method, input)s."""
    home = {}
    for box in boxes:
        for tensor in box.outputs:
            home[box.name, tensor.name.partition(" to ")[0]] = (box.name, tensor.name)
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for box in boxes:
        for tensor in box.inputs:
            if tensor.source in home:
                found.setdefault(home[tensor.source], []).append((box.name, tensor.name))
    return found


def _draw_box(plot: Plot, box: Box, layout: _Layout) -> None:
    top = layout.top[box.name]
    plot.add(
        "rect",
        x="0%",
        width="100%",
        y=top + 0.5,
        height=box.height_px - 1,
        rx=6,
        class_="box state" if box.shares else "box",
    )
    plot.add("text", box.name, x=10, y=top + 20, class_="head")
    for kind, tensors in (("in", box.inputs), ("out", box.outputs)):
        for tensor in tensors:
            y = layout.row[box.name, kind, tensor.name]
            direction = "" if box.shares else kind
            plot.add("text", direction, x=10, y=y + 4, class_=f"direction {kind}")
            plot.add(
                "text",
                tensor.name,
                title=tensor.meaning or None,
                x=10 if box.shares else 40,
                y=y - 3,
                class_="name",
            )
            plot.add(
                "text",
                textwrap.shorten(tensor.meaning, MEANING, placeholder=" ..."),
                x="44%",
                y=y + 4,
                class_="meaning",
            )
            plot.add("text", tensor.facts, x=10 if box.shares else 40, y=y + 12, class_="tick code")


def _draw_flow(
    plot: Plot, layout: _Layout, start: tuple[str, str], ends: Sequence[tuple[str, str]], lane: int
) -> None:
    """From an output along a lane at the left to each input that it becomes."""
    x = -(LANE_PX * lane + 12)
    begin = layout.row[start[0], "out", start[1]]
    for end in ends:
        stop = layout.row[end[0], "in", end[1]]
        plot.add(
            "path",
            title=f"{start[1]} of {start[0]} is an input of {end[0]}",
            d=f"M0 {begin:g} H{x} V{stop:g} H-6",
            class_="flow",
        )
        plot.add("path", d=f"M-7 {stop - 4:g} L0 {stop:g} L-7 {stop + 4:g} Z", class_="arrow")


def _draw_shared(plot: Plot, layout: _Layout, state: str, method: str, lane: int) -> None:
    """Between a state and a method that has it, along a lane at the right."""
    x = LANE_PX * lane + 12
    begin, stop = (layout.top[name] + HEAD_PX / 2 for name in (state, method))
    nested = {"x": "100%", "overflow": "visible", "width": 1, "height": 1}
    plot.inside(
        nested,
        ("path", {"d": f"M0 {begin:g} H{x} V{stop:g} H6", "class": "flow state"}),
        *(
            ("path", {"d": f"M7 {y - 4:g} L0 {y:g} L7 {y + 4:g} Z", "class": "arrow state"})
            for y in (begin, stop)
        ),
    )
