"""The page is one safe file: nothing is loaded, only its own script runs, every name stays text."""

import base64
import hashlib
import io
import re
from importlib import resources

import numpy as np
import pytest
from PIL import Image

from newkinds.comparison import Comparison, Entry, Row
from newkinds.discovery.report import CategoryRow, Page, ShownImage, render
from pages import ALL, HOSTILE, PARAMETERS, PER_CATEGORY, TIME, Document, a_page, over


def policy_of(document: Document) -> str:
    (policy,) = [m["content"] for m in document.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    return policy or ""


def test_every_picture_is_inside_and_described() -> None:
    html = render(a_page())
    document = Document(html)
    tiles = [tile for tile in document.all("i") if tile.get("role") == "img"]
    at_a_glance, in_groups, of_a_pair = 2 * 1, 3 * 1, 2 * 3
    doubt_outlier_finding_junk = 4
    listed = 3 * PER_CATEGORY + at_a_glance + in_groups + of_a_pair + doubt_outlier_finding_junk
    assert len(tiles) == listed
    assert all(tile["title"] for tile in tiles)
    sheets = dict(re.findall(r"\.(s\d+)\{background-image:url\(data:image/jpeg;base64,([\w+/=]+)\)", html))
    assert {(tile["class"] or "").split()[0] for tile in tiles} == set(sheets)
    for sheet in sheets.values():
        Image.open(io.BytesIO(base64.b64decode(sheet))).load()
    for image in document.all("img"):
        assert (image["src"] or "").startswith("data:image/jpeg;base64,")
        assert image["alt"]


def test_nothing_is_loaded_from_elsewhere_and_only_its_own_script_runs() -> None:
    html = render(a_page(HOSTILE[:10]))
    document = Document(html)
    policy = policy_of(document)
    assert "default-src 'none'" in policy
    own = resources.files("newkinds.discovery.report").joinpath("page.js").read_text("utf-8")
    assert document.scripts == own
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}';" in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")
    assert len(document.all("script")) == 1
    for tag, attributes in document.elements:
        assert tag not in {"iframe", "object", "embed", "base", "form"}
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "srcset", "action", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert "://" not in html
    assert not re.search(r"url\((?!data:image/jpeg;base64,)|@import", html.replace("background:url(x)", ""))


def test_the_script_never_makes_markup_of_text() -> None:
    script = resources.files("newkinds.discovery.report").joinpath("page.js").read_text("utf-8")
    for dangerous in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval", "Function(", "</"):
        assert dangerous not in script


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_stay_text_wherever_they_stand(name: str) -> None:
    html = render(a_page([name]))
    document, calm = Document(html), Document(render(a_page(["calm"])))
    assert [tag for tag, _ in document.elements] == [tag for tag, _ in calm.elements]
    assert [sorted(attributes) for _, attributes in document.elements] == [sorted(a) for _, a in calm.elements]
    shown = name.replace("\udcff", "\\udcff").replace("\x07", "\N{REPLACEMENT CHARACTER}")
    on_map = 1 if len(name) > 18 else 0  # where a long name is cut
    assert document.text.count(shown) == calm.text.count("calm") - on_map
    assert document.scripts == calm.scripts
    assert {tile["title"] for tile in document.all("i") if tile.get("role")} == {shown}
    html.encode("utf-8")  # a file can be written


def test_links_lead_somewhere_and_ids_are_unique() -> None:
    document = Document(render(a_page(["one", "two", "three", "four"])))
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {(link["href"] or "")[1:] for link in document.all("a")}
    targets |= {a["aria-labelledby"] or "" for _, a in document.elements if "aria-labelledby" in a}
    assert targets <= set(ids)
    sections = {"comparison", "fields", "pairs", "labels", "unlike", "check", "count", "plan", "skipped", "made"}
    sections |= {"by-hand", "accuracy", "groups"}
    assert {"new-1", "new-2", "known-1", "known-2"} | sections <= targets


def test_headings_and_landmarks_give_an_outline() -> None:
    document = Document(render(a_page()))
    tags = [tag for tag, _ in document.elements]
    for once in ("h1", "main", "nav", "footer"):
        assert tags.count(once) == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in zip(levels[:1] + levels, levels, strict=False) if before > 1)
    assert document.all("html")[0]["lang"] == "en"


def test_what_was_found_comes_first_and_how_it_was_made_last() -> None:
    document = Document(render(a_page()))  # heron and crane are new
    order = [
        attributes["id"]
        for tag, attributes in document.elements
        if tag == "section" or (tag == "article" and "id" in attributes)
    ]
    assert order[:6] == ["comparison", "overview", "groups", "new-categories", "new-1", "new-2"]
    assert order[-8:] == ["accuracy", "fields", "reliability", "count", "plan", "by-hand", "skipped", "made"]
    assert document.text.rindex("Backbone") > document.text.index("Skipped files 3")


def test_a_category_shows_both_ends_and_opens_all() -> None:
    html = render(a_page())
    article = html.partition('id="new-1"')[2].partition("</article>")[0]
    most, least, others = (
        re.findall(r'title="(heron/\d.png)"', part)
        for part in re.split(r"Least certain|<details", article.partition("Most certain")[2])
    )
    assert most == ["heron/0.png", "heron/1.png", "heron/2.png"]
    assert least == ["heron/5.png", "heron/6.png", "heron/7.png"]
    assert others == ["heron/3.png", "heron/4.png"]
    assert "2 of the 34 others" in article, "40 images, 6 of them always shown"
    assert 'href="#new-2"' in article.partition("Nearest")[2]
    assert 'title="labelled images disagree' in article


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
    assert "difference" not in document.text


def test_page_with_nothing_to_show() -> None:
    document = Document(render(Page("Nothing", "", [], [], "newkinds discover empty", "0.2.0")))
    assert "No image was assigned" in document.text
    assert document.all("img") == []
    assert not [attributes for _, attributes in document.elements if attributes.get("role") == "img"]


def test_category_without_pictures_or_confidence() -> None:
    bare = [CategoryRow("bare", True, 0, float("nan"))]
    document = Document(render(Page("One", "", [], bare, "", "0.2.0")))
    assert "bare" in document.text
    assert "nan" not in document.text.lower()
    assert document.all("img") == []


def test_an_image_that_has_vanished_keeps_its_place() -> None:
    row = CategoryRow("left", True, 1, 0.5, [ShownImage("gone.png", "left", 0.5)])
    (tile,) = [t for t in Document(render(Page("One", "", [], [row], "", "0.2.0"))).all("i") if t.get("role")]
    assert (tile["class"], tile["title"]) == ("gone", "gone.png")
    assert "No picture" in (tile["data-note"] or "")


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
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]))
    for text in ("ink", "soft", "new", "known", "better", "worse", "mark"):
        for ground in ("paper", "card"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for tinted in ("new", "mark"):
        assert contrast(colours[tinted], colours[f"{tinted}-tint"]) >= 4.5
    assert contrast(colours["soft"], colours["new-tint"]) >= 4.5  # in the row of the chosen candidate
