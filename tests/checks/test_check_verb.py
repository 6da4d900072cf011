"""`newkinds check`: what it prints and writes, and its exit status."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds
from conftest import save_image

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def faulty(photos: Path) -> Path:
    """A folder with a copy under another label and a broken file."""
    shutil.copy(photos / "red" / "0.png", photos / "green" / "copy.png")
    (photos / "red" / "broken.jpg").write_bytes(b"nope")
    return photos


def test_what_is_found_is_printed_and_written(run_cli: Cli, faulty: Path, tmp_path: Path) -> None:
    status, out, _ = run_cli("check", faulty, "--out", tmp_path / "new" / "checked", "--pixels-only")
    assert status == 1
    assert "22 images: 9 labelled and 13 unlabelled; 2 known classes with 4 to 5 labelled images each." in out
    assert "1 image is skipped" in out
    assert "2 images are under another label too: decide for one label each." in out
    assert "not checked: wrong label, outlier (they need the features of a backbone: leave out --pixels-only)" in out
    with open(tmp_path / "new" / "checked" / "check.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {(row["path"], row["check"]) for row in rows if row["path"]}
    red, green = str(Path("red") / "0.png"), str(Path("green") / "copy.png")
    assert {(red, "two labels"), (green, "two labels"), (str(Path("red") / "broken.jpg"), "unreadable")} <= found
    assert ({red, green} & {path for path, check in found if check == "duplicate"}) == {red}  # green/ comes first


def test_json_for_scripts_and_a_named_backbone(run_cli: Cli, photos: Path) -> None:
    status, out, _ = run_cli("check", photos, "--backbone", "tiny", "--json")
    result = json.loads(out)
    assert result["not_run"] == []
    assert result["findings"][0]["check"] == "coverage"
    assert status == int(any(record["path"] for record in result["findings"]))


def test_the_exit_status_of_good_data_is_zero(run_cli: Cli, tmp_path: Path) -> None:
    for name, colour in {"red": (250, 0, 0), "green": (0, 250, 0), "unlabeled": (0, 0, 250)}.items():
        for number in range(5):
            save_image(tmp_path / name / f"{name}{number}.png", colour, size=(80, 60))
    status, out, _ = run_cli("check", tmp_path, "--pixels-only")
    assert status == 0, out


def test_from_python(faulty: Path) -> None:
    findings = newkinds.check(faulty, pixels_only=True)
    assert [finding.check for finding in findings if finding.flagged] == [
        "unreadable", "two labels", "duplicate", "tiny"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [["nowhere/"], ["creatures", "--backbone", "tinny"], ["creatures", "--out", "{}"]]
)
def test_what_cannot_be_checked_is_said(run_cli: Cli, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "file").write_text("")
    status, _, err = run_cli("check", *[argument.format(tmp_path / "file") for argument in arguments])
    assert status == 1
    assert err.startswith("error: ")


def test_a_list_of_images_is_not_replaced(run_cli: Cli, photos: Path) -> None:
    (photos / "check.csv").write_text("path,label\nred/0.png,red\n")
    status, _, err = run_cli("check", photos / "check.csv", "--out", photos, "--pixels-only")
    assert status == 1
    assert "would be replaced, but it is an input" in err


def test_without_any_backbone_the_pixels_are_checked(
    run_cli: Cli, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.delenv("NEWKINDS_BACKBONE")
    for module in ("auto", "hub"):
        monkeypatch.setattr(f"newkinds.encoders.{module}.cached_file", lambda *_: None)
    monkeypatch.setattr("newkinds.encoders.hub._connect", none)
    _, _, err = run_cli("check", photos, "--download")
    assert "none can be downloaded: only pixels count" in err
    _, out, err = run_cli("check", photos)
    brought = "nothing is downloaded without --download, which would bring vit_small_patch14_dinov2 (about 88 MB)"
    assert f"{brought}: only pixels count" in err
    assert "21 images" in out
    how = "they need the features of a backbone: add --download or --weights FILE"
    assert f"not checked: wrong label, outlier ({how})" in out
    status, _, err = run_cli("check", photos, "--weights", photos / "none.pth")  # what is named must be there
    assert status == 1
    assert "none.pth" in err
