"""Figures of a run: what is chosen and counted, and that every name can be drawn without overlapping another."""

import io
import logging

import numpy as np
import pytest
from PIL import Image

from newkinds.cluster.metrics import clustering_accuracy
from newkinds.discovery.figures import sheet
from newkinds.discovery.figures.alphabet import CROP_SIDE, alphabet_figure, crop, letters
from newkinds.discovery.figures.attention_maps import attention_figure, attention_spread
from newkinds.discovery.figures.confusion import confusion_figure, confusion_of
from newkinds.discovery.figures.part_chart import parts_figure
from newkinds.discovery.figures.scatter import Scattered, map_figure, places_of
from newkinds.discovery.figures.sheet import new_figure, picture, place_apart, shown_names

ODD = [
    "$x_1$ and $y^2$",
    "$",
    "\\$5",
    "a_{b}^c",
    "<b>&amp;</b>",
    "чёрный дрозд",
    "鳥類",
    "new\nline",
    "x" * 300,
    "50 %",
]


def names(count: int) -> list[str]:
    return [*ODD, *(f"Black_footed_Albatross_of_the_north_{i:03d}" for i in range(count))][:count]


def size_of(png: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(png)).size


@pytest.mark.parametrize("count", [1, 5, 16, 40, 200])
def test_any_names_and_numbers_of_categories_are_drawn(
    count: int, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(count, size=4 * count)
    of, found = names(count), np.where(rng.random(4 * count) < 0.7, true, 0)
    confusion = confusion_of([of[t] for t in true], [f"new-{f}" for f in found], set(of[: count // 2]))
    scattered = Scattered(
        "a_$run$", rng.normal(size=(4 * count, 2)), [of[t] for t in true], (true > count // 2).tolist()
    )
    with caplog.at_level(logging.WARNING):
        for drawn in (confusion_figure(confusion, "note"), map_figure([scattered, scattered], "note")):
            assert max(size_of(drawn.png)) < 4000
            assert drawn.svg.startswith(b"<?xml")
    # such as: glyph missing from font; not what other tests left open, or what other libraries are going to change
    elsewhere = (ResourceWarning, DeprecationWarning)
    assert not [warning.message for warning in recwarn.list if not issubclass(warning.category, elsewhere)]
    assert not caplog.records


def test_the_same_figure_has_the_same_bytes_and_math_stays_text() -> None:
    confusion = confusion_of(["$a$", "b"], ["$a$", "new-1"], {"$a$"})
    assert confusion_figure(confusion, "n") == confusion_figure(confusion, "n")
    assert confusion_figure(confusion, "n") != confusion_figure(confusion_of(["a", "b"], ["a", "new-1"], {"a"}), "n")


def test_names_are_short_visible_and_numbered_if_no_font_has_them() -> None:
    shown = shown_names(ODD)
    assert all(len(name) <= sheet.LONGEST_NAME for name in shown)
    assert shown[0] == "$x_1$ and $y^2$"
    assert shown[7] == "new\\x0aline"
    assert shown_names(["\U0010fffd", "a"]) == ["[0]", "a"]  # a letter for private use
    two = shown_names([f"{'long ' * 9}{i}" for i in (1, 2)])
    assert two[0] != two[1]


def test_labels_do_not_overlap() -> None:
    boxes = []

    @picture
    def draw() -> object:
        figure = new_figure(3, 3)
        axes = figure.subplots()
        rng = np.random.default_rng(0)
        labels = [
            axes.annotate(f"label {i}", xy, (0, 0), textcoords="offset points")
            for i, xy in enumerate(rng.random((90, 2)))
        ]
        left = place_apart(labels, axes)
        kept = [label for label in labels if label.axes is not None]
        assert len(kept) == left > 10
        boxes.extend(label.get_window_extent(figure.canvas.get_renderer()) for label in kept)
        return figure

    draw()
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_confusion_has_the_best_match_on_its_diagonal() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(6, size=300)
    found = (np.where(rng.random(300) < 0.6, true, rng.integers(6, size=300)) + 2) % 6
    confusion = confusion_of([f"class {t}" for t in true], [f"c{f}" for f in found], {"class 4", "class 5"})
    assert confusion.accuracy == pytest.approx(clustering_accuracy(true, found, [4, 5]).all)
    assert confusion.classes[:2] == ["class 4", "class 5"]
    assert confusion.known == 2
    for row, name in enumerate(confusion.classes):
        for column, category in enumerate(confusion.categories):
            naive = sum(f"class {t}" == name and f"c{f}" == category for t, f in zip(true, found, strict=True))
            assert confusion.counts[row, column] == naive
    row, column = confusion.largest(1)[0]
    off = confusion.counts - np.diag(np.diag(confusion.counts))
    assert row != column
    assert confusion.counts[row, column] == off.max()


@pytest.mark.parametrize(("classes", "categories"), [(5, 3), (3, 5)])
def test_confusion_with_other_numbers_of_categories(classes: int, categories: int) -> None:
    true = np.repeat(np.arange(classes), 10)
    confusion = confusion_of([f"t{t}" for t in true], [f"c{t % categories}" for t in true], {"t0"})
    found = {f"c{t % categories}" for t in range(classes)}
    assert confusion.counts.sum() == len(true)
    assert set(confusion.categories) == found
    assert confusion.pairs == min(classes, len(found))
    assert confusion.accuracy == pytest.approx(confusion.pairs / classes)
    assert size_of(confusion_figure(confusion, "note").png)[0] > 300


def test_letters_prefer_other_categories_and_take_an_image_once() -> None:
    peak = np.array([[0.9], [0.8], [0.7], [0.6], [0.5]])
    patch = np.arange(5)[:, None]
    letter = letters(peak, patch, np.array([1.0]), ["a", "a", "a", "b", "b"], examples=3)[0]
    assert letter.images == [0, 1, 3]  # the best of a and of b, then the best of what is left; strongest first
    assert letter.patches == [0, 1, 3]
    assert letter.shares == pytest.approx([0.9, 0.8, 0.6])
    assert letters(peak, patch, np.array([1.0]), ["a"] * 5, examples=9)[0].images == [0, 1, 2, 3, 4]


def test_a_crop_shows_the_patch_where_it_says() -> None:
    view = np.zeros((64, 64, 3), np.uint8)
    view[8:16, 24:32] = 255  # patch (1, 3) of 8 × 8
    pixels, (x, y, wide, tall) = crop(view, 1 * 8 + 3, (8, 8))
    assert pixels.shape == (CROP_SIDE, CROP_SIDE, 3)
    inside = pixels[round(y) + 2 : round(y + tall) - 2, round(x) + 2 : round(x + wide) - 2]
    assert inside.min() > 200
    assert pixels.mean() == pytest.approx(255 / 9, rel=0.1)
    corner, (x, y, _, _) = crop(view, 0, (8, 8))  # moved inwards: the patch lies in the corner
    assert (x, y) == (0, 0)
    assert corner.shape == pixels.shape


def test_alphabet_without_a_picture_that_has_gone() -> None:
    found = letters(np.eye(3), np.zeros((3, 3), int), np.ones(3) / 3, ["a", "b", "c"])
    cut = crop(np.zeros((64, 64, 3), np.uint8), 0, (8, 8))
    crops = [[None if image == 1 else cut for image in letter.images] for letter in found]
    assert alphabet_figure(found, crops, [True, False, True], ["a", "b", "c"], "note").png


def test_spread_of_attention() -> None:
    weights = np.random.default_rng(0).random((3, 5))
    for row, found in zip(weights, attention_spread(weights), strict=True):
        shares = [weight / sum(row) for weight in row]
        assert found == pytest.approx(-sum(share * np.log(share) for share in shares) / np.log(5))
    assert attention_spread(np.array([1.0, 0, 0])) == 0


@pytest.mark.parametrize("count", [1, 2, 7])
def test_attention_of_several_networks_and_images(count: int) -> None:
    views = [np.full((32, 48, 3), 90, np.uint8)] * count
    seen = [("host $a$", np.ones((count, 6)) / 6, (2, 3)), ("other", np.eye(6)[[0] * count], (2, 3))]
    assert attention_figure(views, seen, ["name"] * count).png


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_places_of_few_or_equal_images(count: int) -> None:
    rows = np.random.default_rng(0).normal(size=(count, 8))
    at, _ = places_of(rows, seed=1)
    assert at.shape == (count, 2)
    assert np.isfinite(at).all()
    np.testing.assert_array_equal(at, places_of(rows, seed=1)[0])
    assert np.isfinite(places_of(np.ones((count, 8)), seed=0)[0]).all()


def test_parts_are_drawn() -> None:
    counts = {"primitives": np.random.default_rng(0).random((12, 7)), "other": np.zeros((12, 7))}
    assert parts_figure(counts, ["a"] * 7, "note").png
