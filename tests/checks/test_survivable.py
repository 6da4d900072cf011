"""Everything that a check finds can stay: discovering works with it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import newkinds
from newkinds.runs.run import Run
from scenes import again, scene

SETTINGS = {"backbone": {"image_size": 32}, "train": {"workers": 0}}


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """Every fault there is a check for, in one folder."""
    root = tmp_path / "photos"
    for number in range(36):
        folder = root / ("cat" if number < 12 else "dog" if number < 15 else "unlabeled")
        folder.mkdir(parents=True, exist_ok=True)
        scene(number).save(folder / f"{number}.png")
    (root / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (root / "cat" / "phone.heic").write_bytes(b"\x00\x00\x00\x18ftypheic")
    Image.new("RGB", (90, 90), "black").save(root / "unlabeled" / "blank.png")
    scene(77).resize((20, 20)).save(root / "unlabeled" / "tiny.png")
    shutil.copy(root / "cat" / "0.png", root / "unlabeled" / "copy.png")
    again(scene(1), "resized").save(root / "dog" / "near.png")  # of a cat
    stripes = np.zeros((90, 90, 3), np.uint8)
    stripes[::6] = (255, 0, 255)
    Image.fromarray(stripes).save(root / "unlabeled" / "stripes.png")
    (root / "rare").mkdir()
    scene(99).save(root / "rare" / "only.png")
    (root / "notes.txt").write_text("no image")
    return root


def test_all_faults_are_found_and_none_of_them_stops_a_run(faulty: Path, tmp_path: Path) -> None:
    findings = {finding.check: finding for finding in newkinds.check(faulty, backbone="tiny", settings=SETTINGS)}
    flagged = {name: {Path(finding.paths[row]).name for row in finding.flagged} for name, finding in findings.items()}
    assert flagged["unreadable"] == {"broken.jpg", "phone.heic"}
    assert flagged["blank"] == {"blank.png"}
    assert flagged["tiny"] == {"tiny.png"}
    assert flagged["duplicate"] == {"copy.png"}
    assert flagged["near-duplicate"] == {"near.png"}
    assert flagged["two labels"] == {"1.png", "near.png"}
    said = {name for name, finding in findings.items() if finding.found.sentence}
    assert {"few classes", "few labels", "few images", "imbalance"} <= said
    for method in ("frozen", "simgcd"):
        short = {**SETTINGS, "train": {"workers": 0, "batch_size": 16, **({} if method == "frozen" else {"epochs": 1})}}
        found = newkinds.discover(faulty, tmp_path / method, k=5, method=method, settings=short)
        assert len(found.members) == 36 + 6
        assert {Path(skipped.path).name for skipped in found.skipped} == {"broken.jpg", "phone.heic"}
        assert len(Run(tmp_path / method).read_table("images.csv")) == 42


def test_a_folder_of_copies_of_one_blank_image(tmp_path: Path) -> None:
    for folder in ("cat", "dog", "unlabeled"):
        (tmp_path / "photos" / folder).mkdir(parents=True)
        for number in range(15):
            Image.new("RGB", (40, 40), "white").save(tmp_path / "photos" / folder / f"{number}.png")
    findings = {f.check: f for f in newkinds.check(tmp_path / "photos", backbone="tiny", settings=SETTINGS)}
    counts = {name: len(finding.flagged) for name, finding in findings.items()}
    assert counts["blank"] == 45
    assert counts["duplicate"] == 44
    assert counts["two labels"] == 30
    assert counts["near-duplicate"] == counts["outlier"] == 0
