"""Words that mean "no label", two spellings of one class, folders in class folders: nothing is guessed in silence."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from conftest import save_image
from newkinds.data import load_table
from newkinds.data.csv_list import read_csv
from newkinds.data.folder import files_of, read_folder
from newkinds.data.spellings import is_no_class, means_no_label, spelling_key
from newkinds.errors import NewkindsError


def listed(folder: Path, text: str) -> str:
    file = folder / "list.csv"
    file.write_text(text, encoding="utf-8")
    return str(file)


NO_LABELS = [
    "unlabeled", "Unlabelled", "unlabled", "nan", "NaN", "None", "NULL", "-1", "-1.0", "<NA>", "#N/A", "n/a", "?",
    "unknown", "misc", "Other", "not labelled", "un-labeled", "UNLABELED ", "unlabel",
]  # fmt: skip
NO_CLASSES = [
    "unlabeled 2", "unlabeled - Copy", "Unlabeled (1)", "unlabelled_old", "unlabled", "unknown", "misc", "_unlabeled",
    "Copy of unlabeled", "unlabeled_images_2024", "un-labelled", "Misc 3", "Unknown (2)", "-1", "None", "New Folder",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_LABELS)
def test_words_that_mean_no_label(tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    table = read_csv(listed(tmp_path, f"path,label,truth\na.png,cat,cat\nb.png,{text},{text}\nc.png,,cat\n"))
    assert table.labels == ["cat", None, None]
    assert table.truth == ["cat", None, "cat"]
    said = capfd.readouterr().err
    assert ("is taken as none" in said) == (text != "-1")


@pytest.mark.parametrize(
    "text", ["labeled", "Nandu", "another", "-2", "0", "unicorn", "miscanthus", "noname", "relabeled"]
)
def test_words_that_are_classes(text: str) -> None:
    assert not means_no_label(text)
    assert not is_no_class(text)


def test_minus_one_beside_other_negative_numbers_is_asked_about(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"list.csv: does the label '-1' mean none, or is it a class like '-2'"):
        read_csv(listed(tmp_path, "path,label\na.png,-1\nb.png,-2\nc.png,1\n"))


@pytest.mark.parametrize("name", NO_CLASSES)
def test_folders_whose_name_is_no_class(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    save_image(tmp_path / "cat" / "a.png")
    save_image(tmp_path / name / "b.png")
    table = read_folder(str(tmp_path))
    assert table.known == ["cat"]
    assert f"the images in '{name}' (1) are taken as unlabelled" in capfd.readouterr().err


def test_a_class_that_mentions_the_word_stays_one_and_is_mentioned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("labeled bottle", "unlabeled bottle"):
        save_image(tmp_path / name / "a.png")
    assert read_folder(str(tmp_path)).known == ["labeled bottle", "unlabeled bottle"]
    assert "'unlabeled bottle' is taken as a known class" in capfd.readouterr().err


COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "Bébé") for form in ("NFC", "NFD"))
SAME = [
    ("Cat", "cat", "capitals"), ("big cat", "big  cat", "spaces"), ("big cat", "big_cat", "spaces"),
    ("big\u00a0cat", "big cat", "spaces|Unicode"), (COMPOSED, DECOMPOSED, "Unicode form"), ("01", "1", "number"),
    ("1", "1.0", "number"), ("class 07", "class 7", "number"), ("ﬁsh", "fish", "Unicode form"),
    ("cat\u200b", "cat", "capitals, spaces or signs"), ("Strauß", "STRAUSS", "capitals"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "difference"), SAME)
def test_two_spellings_of_a_class_are_refused(tmp_path: Path, one: str, other: str, difference: str) -> None:
    with pytest.raises(NewkindsError, match=f"list.csv: .* differ only in .*({difference})"):
        read_csv(listed(tmp_path, f'path,label\na.png,"{one}"\nb.png,"{other}"\nc.png,\n'))
    with pytest.raises(NewkindsError, match="differ only in"):
        read_csv(listed(tmp_path, f'path,label,truth\na.png,"{one}","{one}"\nb.png,,"{other}"\n'))
    if one.casefold() != other.casefold() or os.name == "posix":
        for name in (one, other):
            save_image(tmp_path / "photos" / name / "a.png")
        if len(list((tmp_path / "photos").iterdir())) == 2:  # some disks take them as one
            with pytest.raises(NewkindsError, match=r"the class folders in .* differ only in"):
                read_folder(str(tmp_path / "photos"))


@pytest.mark.parametrize(
    ("one", "other"), [("1.1", "1.10"), ("1.01", "1.1"), ("cat", "cats"), ("-5", "5"), ("a1", "a 1"), ("10", "100")]
)
def test_other_classes_stay_apart(one: str, other: str) -> None:
    assert spelling_key(one) != spelling_key(other)


def test_capital_and_small_letters_may_be_classes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = read_csv(listed(tmp_path, "path,label\na.png,A\nb.png,a\nc.png,\n"))
    assert table.known == ["A", "a"]
    assert "'A' (1) and 'a' (1) are taken as different classes" in capfd.readouterr().err


def test_lines_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"a.png has the label 'cat' in line 2 and 'dog' in line 4: delete one"):
        read_csv(listed(tmp_path, "path,label\na.png,cat\nb.png,\n./a.png,dog\n"))
    with pytest.raises(NewkindsError, match=r"a.png is in truth 'cat' in line 2 and 'dog' in line 3"):
        read_csv(listed(tmp_path, "path,label,truth\na.png,,cat\na.png,,dog\n"))


# -- folders in folders ----------------------------------------------------------------------------------------------


@pytest.fixture
def families(tmp_path: Path) -> Path:
    for name in ("Felidae/Bengal", "Felidae/Siamese", "Canidae/Poodle", "unlabeled"):
        save_image(tmp_path / "photos" / name / "a.png")
    return tmp_path / "photos"


def test_nested_class_folders_are_mentioned(families: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert read_folder(str(families)).known == ["Canidae", "Felidae"]
    said = capfd.readouterr().err
    assert "2 class folders have sub-folders with images: Canidae/Poodle is taken as the class 'Canidae'" in said
    assert "--set data.class_folder=leaf" in said


def test_the_rule_for_nested_class_folders_can_be_said(families: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = {"name": "folder", "path": str(families)}
    assert load_table({**data, "class_folder": "leaf"}).known == ["Bengal", "Poodle", "Siamese"]
    assert load_table({**data, "class_folder": "top"}).known == ["Canidae", "Felidae"]
    assert capfd.readouterr().err == ""
    save_image(families / "Canidae" / "Bengal" / "a.png")
    load_table({**data, "class_folder": "leaf"})
    assert "each is one class: Canidae/Bengal and Felidae/Bengal" in capfd.readouterr().err


def test_unlabeled_inside_a_class_is_unlabelled(families: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save_image(families / "Felidae" / "unlabeled" / "b.png")
    table = read_folder(str(families))
    assert dict(zip(table.paths, table.labels, strict=True))[str(Path("Felidae", "unlabeled", "b.png"))] is None
    assert "'Felidae/unlabeled' (1)" in capfd.readouterr().err


def test_the_parts_of_a_data_set_are_no_classes(tmp_path: Path) -> None:
    for name in ("train/cat", "train/dog", "test/cat"):
        save_image(tmp_path / name / "a.png")
    with pytest.raises(NewkindsError, match=r"\(test, train\) are parts of a data set, not classes: name one of them"):
        read_folder(str(tmp_path))


# -- what is no data -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="devices have other names")
@pytest.mark.parametrize("path", ["/", "/proc", "/proc/self", "/dev", "/sys/kernel"])
def test_a_whole_disk_is_no_folder_of_images(path: str) -> None:
    if not Path(path).is_dir():
        pytest.skip("not on this machine")
    with pytest.raises(NewkindsError, match="is no folder of images, but belongs to the system"):
        load_table({"name": "folder", "path": path})
    with pytest.raises(NewkindsError, match="is no folder of images"):
        files_of([path], [])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["csv", "vectors", "folder"])
def test_data_that_never_end_are_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe")):
        with pytest.raises(NewkindsError, match=r"is not a file, but|there is no folder"):
            load_table({"name": name, "path": path})


@pytest.mark.skipif(os.name != "posix", reason="devices have other names")
def test_corrections_that_never_end_are_refused(families: Path) -> None:
    data = {"name": "folder", "path": str(families), "class_folder": "top", "corrections": "/dev/zero"}
    with pytest.raises(NewkindsError, match="/dev/zero is not a file"):
        load_table(data)


def test_a_folder_of_too_many_other_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("newkinds.data.folder.MOST_OTHERS", 3)
    save_image(tmp_path / "cat" / "a.png")
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("text")
    with pytest.raises(NewkindsError, match=r"more than 3 files that are no images, the last one seen is .*name the"):
        read_folder(str(tmp_path))
