"""A page with everything on it, whose names may be anything."""

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np

from newkinds.category_count import Count
from newkinds.comparison import Column, Comparison, Entry, OverSeeds, Row
from newkinds.data.table import table_of_pixels
from newkinds.discovery.figures.field_maps import field_overlays
from newkinds.discovery.marks import MEANINGS
from newkinds.discovery.report import ByHand, CategoryRow, FieldPictures, LogLine, MaybeOne, Page, ShownImage
from newkinds.discovery.report.accuracy import AccuracyRow, AccuracyTable
from newkinds.discovery.report.charts import count_curve, dots
from newkinds.discovery.report.sheets import Tile, draw_sheets
from newkinds.runs.records import CandidateScore, Finding, PlanRecord, Reliability, ReliabilityBin, Stage

HOSTILE = [
    "<script>alert(1)</script>",
    "</script></style>--><script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7 * 7 }}{% include 'x' %}",
    "'); background:url(x) }",
    "שלום \u202eknup",
    "🦜 parrots",
    "two\nlines",
    "not utf-8 \udcff",
    "control \x07 character",
    "https://example.com/a.png",
    "long " * 2000,
    "x" * 300,
]
ALL, TIME = Column("all", "All", "%", "higher"), Column("time", "Time", "s", "lower")
PARAMETERS = Column("parameters", "Parameters", decimals=0)
ANIMALS = ["heron", "otter", "crane"]
PER_CATEGORY = 8  # images: three most certain, three least certain, two others


class Document(HTMLParser):
    """What a browser would build, as far as the tests ask."""

    VOID = ("meta", "link", "img", "br", "input")

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.scripts = ""
        self.feed(html)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts += data
        elif "style" not in self.open:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def squares(side: int = 64) -> np.ndarray:
    return np.kron(np.random.default_rng(side).integers(0, 256, (2, 2, 3)), np.ones((side // 2, side // 2, 1))).astype(
        np.uint8
    )


def over(*values: float) -> OverSeeds | None:
    return OverSeeds.of(dict(enumerate(values)))


def a_comparison() -> Comparison:
    host = [Entry(ALL, over(58.2, 58.44)), Entry(TIME, over(61.0, 61.2)), Entry(PARAMETERS, over(1_410_560))]
    compared = [
        Entry(ALL, over(61.8, 62.08), host[0].ours),
        Entry(TIME, over(66.0, 66.24), host[1].ours),
        Entry(PARAMETERS, over(1_532_675), host[2].ours),
    ]
    return Comparison(
        rows=[Row("host", host, runs=2), Row("host + CPF", compared, runs=2)],
        protocol=[("Seed", "0"), ("Backbone", "tiny")],
        note="On a small data set.",
    )


def _image(name: str, place: int, tile: Tile) -> ShownImage:
    """The first is labelled rightly, the second wrongly, the third was moved, the last is like no category."""
    path = f"{name}/{place}.png" if name in ANIMALS else name
    label = name if place < 2 else None
    status = {2: "moved", 3: "accepted"}.get(place, "")
    return ShownImage(path, name, 0.99 - 0.1 * place, label, place != 1, 1.5 if place == 7 else 0.4, tile, status)


def a_page(names: list[str] | None = None, **changes: Any) -> Page:
    """A full page; `names` go wherever a name can stand. Every second category is new, and one is marked."""
    names = names or ANIMALS
    count = len(names) * PER_CATEGORY
    pixels = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    pixels[1] = 255  # a white image
    groups = np.arange(count).reshape(len(names), PER_CATEGORY)
    sheets, tile_of = draw_sheets(table_of_pixels("x", pixels, [""] * count), groups.tolist(), 200_000)
    of = np.repeat(np.arange(len(names)), PER_CATEGORY)
    places = np.random.default_rng(1).random((count, 2))
    drawn, dot_width = dots(places, of, places[::PER_CATEGORY], names)
    images = [
        [_image(name, i, tile_of[row]) for i, row in enumerate(group.tolist())]
        for name, group in zip(names, groups, strict=True)
    ]
    categories = [
        CategoryRow(
            name, place % 2 == 0, 40 + place, 0.8 - 0.1 * place, shown[:3], shown[5:], shown[3:5], name,
            ["mixed"] if place == 0 else [], [other for other in names if other != name], drawn[place],
            10 + place, name,
        )
        for place, (name, shown) in enumerate(zip(names, images, strict=True))
    ]  # fmt: skip
    first = names[0]
    field = np.random.default_rng(0).dirichlet(np.ones(6), size=4)
    counted = Count(12, [(k, 1 / k) for k in range(5, 30)], first, 4, first, 9, 15, 0.9, "sure", {first: 3}, first)
    candidates = [
        CandidateScore(first, first, {first: first}, True, [0.59, 0.61], 0.7, 0.5, 75, first),
        CandidateScore("frozen", state="not tried"),
    ]
    settings: dict[str, Any] = {
        "title": first,
        "subtitle": first,
        "summary": [(first, first), ("images in", "123")],
        "categories": categories,
        "command": first,
        "version": "0.2.0",
        "sheets": sheets,
        "dot_width": dot_width,
        "meanings": MEANINGS,
        "groups": [[name] for name in names],
        "pairs": [MaybeOne(first, names[-1], 0.7)],
        "doubts": [images[0][1]],
        "unlike": [images[0][7]],
        "findings": [
            (Finding(first, first, 1.0, first), images[0][2]),
            (Finding("", "imbalance", None, "unequal"), None),
        ],
        "count": counted,
        "curve": count_curve(counted),
        "plan": PlanRecord(first, first, first, 2, 3600, candidates=candidates, stages=[Stage(first, 3.2)]),
        "reliability": Reliability([ReliabilityBin(0.8, 0.9, 20, 0.85, 0.8)], 20, first, 0.05),
        "comparison": a_comparison(),
        "fields": FieldPictures(names, field_overlays([squares()] * len(names), [field] * len(names), (2, 2))),
        "run": first,
        "notice": first,
        "by_hand": ByHand(
            2,
            [("images moved", 3), ("images accepted", 0)],
            [LogLine(3, "2026-11-17 09:30", first, True), LogLine(2, "2026-11-17 09:29", first, False)],
            [(replace(images[0][4], status="junk"), first)],
            5,
        ),
        "accuracy": AccuracyTable([AccuracyRow(first, 0.6, 0.7, None, 0.55, 0.5)], first, [(first, first)]),
        "skipped": [(name, name) for name in names],
    }
    return Page(**(settings | changes))
