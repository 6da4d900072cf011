"""Each check on images drawn for it: what is planted is found, and nothing else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from newkinds.checks import (
    CHECKS,
    Check,
    CheckInput,
    CheckResult,
    Verdict,
    findings_of,
    findings_text,
    not_run,
    run_checks,
    write_findings,
)
from newkinds.checks.findings import in_order
from newkinds.data.table import Skipped, Table, readable
from newkinds.errors import NewkindsError
from newkinds.runs.run import Run
from scenes import SIDE, again, scene


def table_of(pictures: list[Image.Image], labels: list[str | None] | None = None) -> Table:
    """A readable table of pictures; two classes and as many unlabelled images, if nothing is said."""
    cycle: list[str | None] = ["cat", "dog", None, None]
    labels = labels or [cycle[row % 4] for row in range(len(pictures))]
    table = Table([f"{row}.png" for row in range(len(pictures))], labels, pictures.__getitem__)
    return readable(table, contents=True)


def flagged(table: Table, check: str, embedding: torch.Tensor | None = None) -> list[str]:
    found = CHECKS[check]().look(CheckInput(table, embedding))
    return [(found.paths or table.paths)[row] for row in np.flatnonzero(found.flag)]


def groups(sizes: dict[str, int], seed: int = 0, noise: float = 0.05) -> tuple[list[str], torch.Tensor]:
    """Classes and unit rows around one direction each."""
    rng = np.random.default_rng(seed)
    names = [name for name, size in sizes.items() for _ in range(size)]
    directions = {name: rng.normal(size=32) for name in sizes}
    rows = np.stack([directions[name] / np.linalg.norm(directions[name]) + rng.normal(0, noise, 32) for name in names])
    return names, F.normalize(torch.tensor(rows, dtype=torch.float32), dim=1)


@pytest.fixture(scope="module")
def clean() -> tuple[Table, torch.Tensor]:
    """80 different scenes of four kinds, half of them labelled, and an embedding that fits the labels."""
    names, rows = groups({"a": 20, "b": 20, "c": 20, "d": 20})
    labels = [name if row % 20 < 10 else None for row, name in enumerate(names)]
    return table_of([scene(seed) for seed in range(80)], labels), rows


@pytest.mark.parametrize("name", in_order())
def test_clean_data_has_no_flags_and_a_score_for_each_image(clean: tuple[Table, torch.Tensor], name: str) -> None:
    table, embedding = clean
    found = CHECKS[name]().look(CheckInput(table, embedding))
    assert found.score.shape == found.flag.shape == (len(found.paths if found.paths is not None else table),)
    assert np.isfinite(found.score).all()
    assert not found.flag.any()
    assert bool(found.sentence) == (name == "coverage")
    assert CHECKS[name].__doc__
    assert "\n" not in (CHECKS[name].__doc__ or "")


@pytest.mark.parametrize("name", in_order())
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_few_images_are_enough_for_every_check(name: str, count: int) -> None:
    table = table_of([scene(seed) for seed in range(count)])
    embedding = groups({"a": count})[1]
    if count > 1 or not CHECKS[name].needs_embedding:
        CHECKS[name]().look(CheckInput(table, embedding if count > 1 else None))
    assert run_checks(table, embedding)[0].check == "coverage"


def test_blank_and_tiny_images() -> None:
    grey = Image.new("RGB", (SIDE, SIDE), (90, 90, 90))
    noisy = Image.fromarray(np.random.default_rng(0).integers(86, 94, (200, 200, 3)).astype(np.uint8))
    table = table_of([scene(0), grey, noisy, scene(1).resize((31, 60)), scene(2).resize((32, 32))])
    assert flagged(table, "blank") == ["1.png", "2.png"]
    assert flagged(table, "tiny") == ["3.png"]
    assert "only 31×60 pixels" in CHECKS["tiny"]().look(CheckInput(table)).why[3]


def test_unreadable_files_are_named_with_their_reason() -> None:
    table = replace(table_of([scene(0)]), skipped=[Skipped("broken.jpg", "damaged: truncated")])
    [finding] = [finding for finding in run_checks(table) if finding.check == "unreadable"]
    assert finding.paths == ["broken.jpg"]
    assert finding.flagged == [0]
    assert findings_of([finding])[0].sentence == "damaged: truncated"


def test_of_exact_copies_one_with_a_label_is_kept() -> None:
    table = table_of([scene(0), scene(1), scene(0), scene(0)], [None, "cat", "cat", None])
    assert flagged(table, "duplicate") == ["0.png", "3.png"]
    assert CHECKS["duplicate"]().look(CheckInput(table)).why[0] == "the same pixels as 2.png"
    assert flagged(table, "near-duplicate") == []


@pytest.mark.parametrize("how", ["resized", "re-encoded", "cropped"])
def test_near_copies_are_found_by_their_pixels(how: str) -> None:
    pictures = [scene(seed) for seed in range(60)] + [again(scene(seed), how) for seed in range(0, 60, 3)]
    table = table_of(pictures, ["cat", *[None] * 79])
    assert flagged(table, "near-duplicate") == [f"{row}.png" for row in range(60, 80)]
    assert flagged(table, "duplicate") == []


def test_in_doubt_the_embedding_decides_what_is_a_copy() -> None:
    pictures = [scene(seed) for seed in range(40)]
    pictures += [scene(seed).crop((8, 8, SIDE - 8, SIDE - 8)) for seed in range(40)]  # too far for pixels alone
    table = table_of(pictures, ["cat", *[None] * 79])
    alone = flagged(table, "near-duplicate")
    apart = F.normalize(torch.randn(80, 64, generator=torch.Generator().manual_seed(0)), dim=1)
    together = torch.cat([apart[:40], F.normalize(apart[:40] + 0.01, dim=1)])
    assert flagged(table, "near-duplicate", apart) == alone
    agreed = flagged(table, "near-duplicate", together)
    assert set(alone) < set(agreed) <= {f"{row}.png" for row in range(40, 80)}
    assert len(agreed) > len(alone) + 10


def test_blank_images_and_equal_backgrounds_are_no_copies_of_each_other() -> None:
    def drawn(column: int) -> Image.Image:
        image = Image.new("RGB", (SIDE, SIDE), "white")
        image.paste((20, 20, 20), (column, 10 + column // 2, column + 14, 30 + column // 2))
        return image

    blank = [Image.new("RGB", (SIDE, SIDE), (level, level, level)) for level in (10, 90, 200)]
    assert flagged(table_of([*blank, *[drawn(column) for column in (0, 16, 32, 48, 64, 80)]]), "near-duplicate") == []


def test_one_picture_under_two_labels() -> None:
    pictures = [scene(0), scene(0), again(scene(0), "resized"), scene(1), scene(1), scene(2)]
    table = table_of(pictures, ["cat", None, "dog", "cat", "cat", "dog"])
    assert flagged(table, "two labels") == ["0.png", "2.png"]
    why = CHECKS["two labels"]().look(CheckInput(table)).why
    assert why[0] == "labelled 'cat', but the same is labelled 'dog' in 2.png"
    assert why[2] == "labelled 'dog', but the same is labelled 'cat' in 0.png"


def test_wrong_labels_are_flagged_and_named() -> None:
    names, rows = groups({"a": 12, "b": 12, "c": 12})
    labels: list[str | None] = [*names]
    labels[3], labels[20], labels[30] = "b", "c", None
    table = table_of([scene(row) for row in range(36)], labels)
    assert flagged(table, "wrong label", rows) == ["3.png", "20.png"]
    why = CHECKS["wrong label"]().look(CheckInput(table, rows)).why
    assert why[3] == "labelled 'b', but looks like 'a'"
    assert why[20] == "labelled 'c', but looks like 'b'"


def test_an_embedding_that_knows_nothing_accuses_nobody() -> None:
    names, _ = groups({"a": 40, "b": 40, "c": 40})
    rows = F.normalize(torch.randn(120, 16, generator=torch.Generator().manual_seed(1)), dim=1)
    table = table_of([Image.new("RGB", (40, 40))] * 120, [*names])
    assert flagged(table, "wrong label", rows) == []


def test_a_class_with_a_single_label_is_not_judged() -> None:
    names, rows = groups({"a": 10, "b": 10, "c": 1})
    assert flagged(table_of([scene(row) for row in range(21)], [*names]), "wrong label", rows) == []


def test_images_far_from_all_others() -> None:
    names, rows = groups({"a": 40, "b": 40})
    rows[7] = F.normalize(torch.randn(32, generator=torch.Generator().manual_seed(3)), dim=0)
    table = table_of([scene(row) for row in range(80)], [*names])
    assert flagged(table, "outlier", rows) == ["7.png"]
    found = CHECKS["outlier"]().look(CheckInput(table, rows))
    cosines = rows @ rows.T - 2 * torch.eye(80)
    angles = torch.arccos(cosines.topk(10, dim=1).values.clamp(-1, 1)).mean(1).double().numpy()
    middle = np.median(angles)
    limit = middle + 3.5 * 1.4826 * np.median(np.abs(angles - middle))
    np.testing.assert_allclose(found.score, angles / limit, rtol=1e-3)  # on the scale of `unlike`: 1 is the limit
    assert found.why[7] == f"{found.score[7]:.2f} × the limit of how far its nearest images may be"
    same = F.normalize(torch.ones(80, 32) + torch.randn(80, 32) * 1e-6, dim=1)  # rounding is no difference
    assert flagged(table, "outlier", same) == []


def said(labels: list[str | None], check: str) -> str:
    pictures = [Image.new("RGB", (40, 40))] * len(labels)
    return CHECKS[check]().look(CheckInput(table_of(pictures, labels))).sentence


def test_what_can_be_promised_with_so_few() -> None:
    assert said(["a"] * 5 + ["b"] * 5 + [None] * 30, "few classes").startswith(
        "2 classes have two labelled images or more: "
    )
    assert said([*"aabbccdd", None], "few classes") == ""
    assert said(["a"] * 5 + ["b"] * 5 + ["c", "d"] + [None], "few classes").startswith("2 classes have two labelled")
    assert said([None] * 30, "few classes") == ""
    assert "2 of 3 known classes have fewer than 5 labelled images (b (1), c (4))" in said(
        ["a"] * 5 + ["b"] + ["c"] * 4 + [None], "few labels"
    )
    assert "1 known class with 5 labelled images." in said(["a"] * 5 + [None], "coverage")
    assert "2 known classes with 5 labelled images each." in said(["a"] * 5 + ["b"] * 5 + [None], "coverage")
    assert said(["a"] * 5 + [None] * 9, "few images").startswith("9 unlabelled images for 1 known class:")
    assert said(["a"] * 5 + [None] * 10, "few images") == ""
    assert said(["a"] * 100 + ["b"] + [None], "imbalance").startswith("'a' has 100 labelled images, 'b' has 1")
    assert said(["a"] * 9 + ["b"] + [None], "imbalance") == ""
    assert "Nothing is left to discover" in said(["a"] * 3, "coverage")
    assert said([None] * 3, "coverage").startswith("3 images: 0 labelled and 3 unlabelled. Categories are found")


def test_without_an_embedding_some_checks_are_left_out(clean: tuple[Table, torch.Tensor]) -> None:
    table, embedding = clean
    assert not_run(run_checks(table)) == ["wrong label", "outlier"]
    assert not_run(run_checks(table, embedding)) == []
    with pytest.raises(NewkindsError, match="79 rows, but there are 80 images"):
        run_checks(table, embedding[:79])


def test_the_table_has_a_row_per_flagged_image_and_one_per_sentence_about_all(tmp_path: Path) -> None:
    table = table_of([scene(0), scene(1), scene(0)], ["cat\n", None, None])
    run = Run(tmp_path)
    write_findings(run_checks(table), run)
    rows = run.read_table("check.csv")
    assert [(row["path"], row["check"]) for row in rows] == [
        ("", "coverage"), ("2.png", "duplicate"), ("", "few classes"), ("", "few labels"), ("", "few images")
    ]  # fmt: skip
    assert rows[1]["score"] == "1.0"
    assert rows[0]["score"] == ""
    write_findings(run_checks(table), tmp_path / "")
    assert run.read_table("check.csv") == rows


def test_the_summary_names_the_worst_and_counts_the_rest() -> None:
    score, why = np.arange(6.0), {row: f"number {row}" for row in range(1, 6)}
    found = Verdict.images(score, why, "is", "odd.")
    text = findings_text([CheckResult("odd", found, [f"{row}.png" for row in range(6)])])
    assert text.splitlines() == [
        "odd  5 images are odd.", "       5.png: number 5", "       4.png: number 4", "       3.png: number 3",
        "       … and 2 more",
    ]  # fmt: skip


def test_a_check_of_ones_own_is_run_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dark(Check):
        """Mine."""

        def look(self, evidence: CheckInput) -> Verdict:
            return Verdict.images(np.ones(len(evidence.table)), {0: "dark"}, "is", "dark.")

    monkeypatch.setitem(CHECKS._entries, "dark", Dark)
    findings = run_checks(table_of([scene(0)]))
    assert findings[-1].check == "dark"
    assert findings[-1].found.sentence == "1 image is dark."
