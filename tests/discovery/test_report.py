"""The page is one safe file: nothing is loaded, nothing runs, every name stays text."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from PIL import Image

from newkinds.comparison import Column, Comparison, Entry, OverSeeds, Row
from newkinds.discovery.figures import field_overlays
from newkinds.discovery.report import (
    CategoryRow,
    FieldPictures,
    Page,
    Thumbnail,
    render,
)

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7 * 7 }}{% include 'x' %}",
    "שלום \u202eknup",
    "🦜 parrots",
    "two\nlines",
    "not utf-8 \udcff",
    "control \x07 character",
    "https://example.com/a.png",
    "long " * 2000,
]
VOID = {"meta", "link", "img", "br"}


class Document(HTMLParser):
    """What a browser would build, as far as the tests ask."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def squares(side: int = 64) -> np.ndarray:
    return np.kron(
        np.random.default_rng(side).integers(0, 256, (2, 2, 3)), np.ones((side // 2, side // 2, 1))
    ).astype(np.uint8)


ALL, TIME = Column("all", "All", "%", "higher"), Column("time", "Time", "s", "lower")
PARAMETERS = Column("parameters", "Parameters", decimals=0)


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


def a_page(names: list[str] | None = None, **changes: object) -> Page:
    """A full page; `names` go wherever a name can stand."""
    categories = [
        CategoryRow(
            name=name,
            is_new=place % 2 == 0,
            size=40 + place,
            confidence=0.8,
            thumbnails=[Thumbnail(squares(), name, 0.93, given_label=name), Thumbnail(squares(), name, 0.5)],
            truth=name,
        )
        for place, name in enumerate(names or ["heron", "otter", "crane"])
    ]
    field = np.random.default_rng(0).dirichlet(np.ones(6), size=4)
    first = categories[0].name
    settings: dict[str, object] = {
        "title": first,
        "subtitle": first,
        "summary": [(first, first), ("images in", "123")],
        "categories": categories,
        "command": first,
        "version": "0.1.0",
        "comparison": a_comparison(),
        "fields": FieldPictures(
            [row.name for row in categories],
            field_overlays([squares()] * len(categories), [field] * len(categories), (2, 2)),
        ),
        "skipped": [(row.name, row.name) for row in categories],
    }
    return Page(**(settings | changes))  # type: ignore[arg-type]


def test_every_picture_is_inside_and_described() -> None:
    document = Document(render(a_page()))
    images = document.all("img")
    assert len(images) == 3 * 2 + 3 * 6
    for image in images:
        source = image["src"] or ""
        assert source.startswith("data:image/jpeg;base64,")
        Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).load()
        assert image["alt"]


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs() -> None:
    html = render(a_page(HOSTILE[:8]))
    document = Document(html)
    policies = [
        meta["content"]
        for meta in document.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    assert "default-src 'none'" in (policies[0] or "")
    assert "script" not in (policies[0] or "")
    for tag, attributes in document.elements:
        assert tag not in {"script", "iframe", "object", "embed", "base", "form"}
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "srcset", "action", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert "://" not in html
    assert not re.search(r"url\(|@import", html)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text_wherever_they_stand(name: str) -> None:
    html = render(a_page([name]))
    document, calm = Document(html), Document(render(a_page(["calm"])))
    assert [tag for tag, _ in document.elements] == [tag for tag, _ in calm.elements]
    shown = name.replace("\udcff", "\\udcff").replace("\x07", "\N{REPLACEMENT CHARACTER}")
    assert document.text.count(shown) == calm.text.count("calm")
    assert document.all("img")[0]["alt"] == shown
    html.encode("utf-8")  # a file can be written


def test_links_lead_somewhere_and_ids_are_unique() -> None:
    document = Document(render(a_page(["twin", "twin", "twin", "twin"])))
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {(link["href"] or "")[1:] for link in document.all("a")}
    targets |= {
        attributes["aria-labelledby"] or ""
        for _, attributes in document.elements
        if "aria-labelledby" in attributes
    }
    assert targets <= set(ids)
    assert {"new-1", "new-2", "known-1", "known-2", "comparison", "fields", "skipped", "made"} <= targets


def test_headings_and_landmarks_give_an_outline() -> None:
    document = Document(render(a_page()))
    tags = [tag for tag, _ in document.elements]
    for once in ("h1", "main", "nav", "footer", "title"):
        assert tags.count(once) == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(
        after <= before + 1 for before, after in zip(levels[:1] + levels, levels, strict=False) if before > 1
    )
    assert document.all("html")[0]["lang"] == "en"


def test_new_categories_come_first() -> None:
    text = Document(render(a_page(["heron", "otter", "crane"]))).text  # heron and crane are new
    start = text.index("New categories")
    assert (
        start
        < text.index("crane", start)
        < text.index("Known categories")
        < text.index("otter", text.index("Known categories"))
    )


def test_differences_are_signed_and_judged_in_words() -> None:
    html = render(a_page())
    cells = [
        " ".join(re.sub(r"<[^>]+>", " ", cell).split())
        for cell in re.findall(r"<td.*?</td>", html.partition('class="differences"')[2])
    ]
    assert cells[:3] == ["+3.6 ± 0.0 [+3.4, +3.9] better", "+5.0 ± 0.0 [+4.8, +5.3] worse", "+122,115"]


def test_what_was_not_measured_is_a_dash() -> None:
    entries = [
        Entry(ALL, over(61.9), None),
        Entry(TIME, over(float("nan"), 60.0), over(61.0)),
        Entry(PARAMETERS, over(5.0), over(5.0)),
    ]
    html = render(a_page(comparison=Comparison([Row("with CPF", entries)], protocol=[])))
    assert "nan" not in Document(html).text.lower()
    cells = re.findall(r"<td[^>]*>([^<]*)", html.partition('class="differences"')[2])
    assert cells[:3] == ["–", "–", "+0"]


def test_losses_have_a_true_minus_sign() -> None:
    row = Row("worse", [Entry(ALL, over(58.32), over(61.94))])
    assert "\N{MINUS SIGN}3.6" in Document(render(a_page(comparison=Comparison([row], [])))).text


def test_comparison_without_rows_shows_its_protocol() -> None:
    document = Document(render(a_page(comparison=Comparison([], [("Seed", "1234")]))))
    assert "1234" in document.text
    assert "Difference" not in document.text


def test_page_with_nothing_to_show() -> None:
    document = Document(render(Page("Nothing", "", [], [], "newkinds discover empty", "0.1.0")))
    assert "No image was assigned" in document.text
    assert document.all("img") == []


def test_category_without_pictures_or_confidence() -> None:
    document = Document(render(a_page(categories=[CategoryRow("bare", True, 0, float("nan"))], fields=None)))
    assert "bare" in document.text
    assert "nan" not in document.text.lower()
    assert document.all("img") == []


def test_thumbnails_are_bounded_and_small_images_keep_their_pixels() -> None:
    pictures = [
        squares(600),
        squares(32),
        Image.fromarray(squares(300)).convert("CMYK"),
        Image.new("LA", (400, 20)),
    ]
    rows = [CategoryRow("sizes", True, 4, 0.5, [Thumbnail(picture, "x", 0.5) for picture in pictures])]
    sources = [
        image["src"] or "" for image in Document(render(a_page(categories=rows, fields=None))).all("img")
    ]
    sizes = [Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).size for source in sources]
    assert sizes == [(128, 128), (32, 32), (128, 128), (128, 6)]
    assert isinstance(pictures[2], Image.Image)
    assert pictures[2].size == (300, 300), "the caller's image is left as it was"


def test_long_list_of_skipped_files_is_cut_with_a_note() -> None:
    text = Document(render(a_page(skipped=[(f"file-{place}.png", "empty") for place in range(1250)]))).text
    assert "file-199.png" in text
    assert "file-200.png" not in text
    assert "1,050 more" in text


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two "#rrggbb" colours."""
    luminances = []
    for colour in (one, other):
        channels = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        luminances.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(scheme: int) -> None:
    css = resources.files("newkinds.discovery.report").joinpath("page.css").read_text("utf-8")
    colours = dict(
        re.findall(r"--([\w-]+): (#\w{6});", re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme])
    )
    for text in ("ink", "soft", "new", "known", "better", "worse"):
        for ground in ("paper", "card"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["new"], colours["new-tint"]) >= 4.5
