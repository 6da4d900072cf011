"""`newkinds update` of a folder of photos: what is new, gone, changed, moved, labelled, a copy or damaged."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

import newkinds
from conftest import save_image
from newkinds import Discovery
from newkinds.discovery.edits import POOL
from newkinds.errors import NewkindsError
from newkinds.runs.changes import UpdateHistory
from newkinds.runs.directory import RunDirectory

COLOURS = {
    "red": (220, 20, 20), "cyan": (20, 200, 210), "blue": (20, 20, 160), "white": (235, 235, 235),
    "black": (20, 20, 20), "yellow": (230, 220, 20),
}  # fmt: skip
KNOWN = ("red", "cyan", "black", "yellow")


def photo(root: Path, colour: str, number: int, folder: str = "unlabeled") -> Path:
    shade = tuple(min(255, value + 3 * (number % 5)) for value in COLOURS[colour])
    return save_image(root / folder / f"{colour}-{number}.png", shade)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four known colours and two new ones, which are named."""
    root = tmp_path_factory.mktemp("begun")
    for colour in COLOURS:
        for number in range(8):
            labelled = colour in KNOWN and number < 5
            photo(root / "photos", colour, number, colour if labelled else "unlabeled")
    found = newkinds.discover(
        root / "photos", root / "run", k=6, backbone="tiny", settings={"train": {"epochs": 0}}, page=False
    )
    for colour in ("blue", "white"):
        number = next(m.category_id for m in found.members if m.path == f"unlabeled/{colour}-0.png")
        found.rename(number, colour)
    return root


@pytest.fixture
def place(begun: Path, tmp_path: Path) -> Path:
    """A copy of photos and run; the run finds its photos there."""
    shutil.copytree(begun / "photos", tmp_path / "photos")
    shutil.copytree(begun / "run", tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    text = run.path("config.yaml").read_text().replace(str(begun / "photos"), str(tmp_path / "photos"))
    run.write("config.yaml", text)
    return tmp_path


def category_of(found: Discovery) -> dict[str, str]:
    return {member.path: member.category for member in found.members}


def test_new_gone_changed_moved_and_copied_photos_are_told_apart(place: Path) -> None:
    photos, before = place / "photos", Discovery.read(place / "run")
    assert category_of(before)["unlabeled/white-3.png"] == "white"
    before.accept(["unlabeled/white-3.png", "unlabeled/white-4.png"])
    before.move(["unlabeled/blue-1.png", "unlabeled/blue-2.png"], "white")
    log = before.log()
    (photos / "unlabeled/white-3.png").rename(photos / "unlabeled/snow.png")  # renamed
    (photos / "unlabeled/blue-1.png").rename(photos / "blue-1.png")  # moved
    (photos / "unlabeled/white-5.png").unlink()  # gone
    photo(photos, "blue", 99).rename(photos / "unlabeled/blue-2.png")  # another picture
    shutil.copy(photos / "red/red-0.png", photos / "unlabeled/again.png")  # a copy
    photo(photos, "blue", 20)  # new
    (photos / "unlabeled/damaged.png").write_bytes(b"no image")

    found = newkinds.update(place / "run", page=False)
    now = {member.path: member for member in found.members}
    assert (now["unlabeled/snow.png"].category, now["unlabeled/snow.png"].status) == ("white", "accepted")
    assert (now["blue-1.png"].category, now["blue-1.png"].status) == ("white", "moved")
    assert (now["unlabeled/blue-2.png"].category, now["unlabeled/blue-2.png"].status) == ("blue", "")
    assert (now["unlabeled/blue-20.png"].category, now["unlabeled/blue-20.png"].since) == ("blue", 1)
    assert now["unlabeled/white-4.png"].status == "accepted"
    assert now.keys().isdisjoint({"unlabeled/white-5.png", "unlabeled/again.png", "unlabeled/white-3.png"})
    skipped = {one.path: one.reason for one in found.skipped}
    assert "the same image as red/red-0.png" in skipped["unlabeled/again.png"]
    assert "unlabeled/damaged.png" in skipped
    [record] = UpdateHistory.of(RunDirectory(place / "run")).updates
    assert record.renamed == {"unlabeled/snow.png": "unlabeled/white-3.png", "blue-1.png": "unlabeled/blue-1.png"}
    assert (record.gone, record.changed) == (["unlabeled/white-5.png"], ["unlabeled/blue-2.png"])
    assert record.copies == {"unlabeled/again.png": "red/red-0.png"}
    assert (record.came, record.skipped) == (1, 1)
    # every other verb finds these images, and asks for none besides
    newkinds.update(place / "run")
    assert len(UpdateHistory.of(RunDirectory(place / "run")).updates) == 1
    page = newkinds.report(place / "run")
    assert "could not be read" not in Path(page).read_text()
    newkinds.export(place / "run", "folders", place / "sorted")
    assert (place / "sorted/white/snow.png").is_file()
    back = newkinds.undo_update(place / "run", page=False)
    assert back.log() == log
    assert category_of(back) == category_of(before)


def test_class_folders_are_a_persons_word(place: Path) -> None:
    photos = place / "photos"
    photo(photos, "blue", 21, "red")  # whoever sorts it there says so
    for number in range(3):
        photo(photos, "white", 30 + number, "snow")  # a class that nobody knew
    (photos / "unlabeled/blue-3.png").rename(photos / "red" / "blue-3.png")  # sorted since
    found = newkinds.update(place / "run", page=False)
    now = {member.path: member for member in found.members}
    assert (now["red/blue-21.png"].category, now["red/blue-21.png"].given_label) == ("red", "red")
    blue = found.category("blue").id
    assert now["red/blue-21.png"].model_category_id == blue  # the model is asked, too
    assert (now["red/blue-3.png"].category, now["red/blue-3.png"].given_label) == ("red", "red")
    snow = found.category("snow")
    assert (snow.is_new, snow.size) == (False, 3)
    [record] = UpdateHistory.of(RunDirectory(place / "run")).updates
    assert [(opened.name, opened.by_label) for opened in record.opened] == [("snow", True)]
    # and its labels are known to whatever comes next
    found.accept([m.path for m in found.members if m.category == "blue"])
    refined = newkinds.refine(place / "run", place / "refined", time="30s")
    assert refined.category("snow").is_new is False
    again = newkinds.assign(place / "run", "sskmeans", page=False)
    assert again.category("snow").is_new is False
    assert {m.category for m in again.members if m.given_label == "snow"} == {"snow"}


def test_photos_from_elsewhere_are_remembered(place: Path) -> None:
    for number in range(3):
        photo(place / "week", "blue", 40 + number, ".")
    single = photo(place / "single", "white", 50, ".")
    listed = photo(place / "list", "red", 60, "files")
    (place / "list/list.csv").write_text("path,label\nfiles/red-60.png,red\n")
    own = place / "photos/unlabeled/blue-0.png"  # is in the run
    found = newkinds.update(place / "run", [place / "week", single, place / "list/list.csv", own], page=False)
    now = {member.path: member for member in found.members if member.since}
    assert {Path(path).name: m.category for path, m in now.items()} == {
        "blue-40.png": "blue", "blue-41.png": "blue", "blue-42.png": "blue", "white-50.png": "white",
        "red-60.png": "red",
    }  # fmt: skip
    assert now[str(listed)].given_label == "red"
    photo(place / "week", "white", 43, ".")
    found = newkinds.update(place / "run", page=False)
    assert [(Path(m.path).name, m.category) for m in found.members if m.since == 2] == [("white-43.png", "white")]
    newkinds.export(place / "run", "folders", place / "sorted")
    assert (place / "sorted/blue/blue-41.png").is_file()
    single.unlink()
    found = newkinds.update(place / "run", page=False)
    assert str(single) not in category_of(found)


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n broken"])
def test_damaged_photos_alone_change_nothing(content: bytes, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        (place / "photos" / "unlabeled" / f"damaged-{number}.png").write_bytes(content)
    before = category_of(Discovery.read(place / "run"))
    assert category_of(newkinds.update(place / "run", page=False)) == before
    assert "none of what came can be read, such as unlabeled/damaged-0.png" in capsys.readouterr().err
    assert not UpdateHistory.of(RunDirectory(place / "run")).updates


def test_photos_that_are_all_gone_are_asked_for(place: Path) -> None:
    before = category_of(Discovery.read(place / "run"))
    (place / "photos").rename(place / "elsewhere")
    with pytest.raises(NewkindsError, match=r"the images of .* are not there: there is no folder"):
        newkinds.update(place / "run")
    photo(place / "photos", "red", 70)
    with pytest.raises(NewkindsError, match=r"none of the 48 images of .* is where it was.*is the drive connected\?"):
        newkinds.update(place / "run")
    assert category_of(Discovery.read(place / "run")) == before


def test_strangers_alone_wait_or_open(place: Path) -> None:
    for number in range(3):
        Image.effect_mandelbrot((40, 30), (-2.0 + number, -1, 1.0 + number, 1), 60).convert("RGB").save(
            place / "photos" / f"strange-{number}.png"
        )
    found = newkinds.update(place / "run", page=False)
    assert {m.category_id for m in found.members if m.since} <= {POOL, *range(6)}
    assert len(found.categories) == 6


def test_a_run_without_its_model_is_refused(place: Path) -> None:
    photo(place / "photos", "red", 70)
    (place / "run/model.safetensors").unlink()
    with pytest.raises(NewkindsError, match=r"model\.safetensors: finish the training first"):
        newkinds.update(place / "run")


def test_no_images_are_added_to_a_data_set(tmp_path: Path) -> None:
    settings = {"data": {"categories": 4, "per_category": 4}, "train": {"epochs": 0}}
    found = newkinds.discover("creatures", tmp_path / "run", k=4, page=False, settings=settings)
    with pytest.raises(NewkindsError, match="creatures is a data set: no images can be added"):
        newkinds.update(found.run, photo(tmp_path, "red", 1))


def test_a_refined_run_takes_labels_of_what_comes(place: Path) -> None:
    found = Discovery.read(place / "run")
    found.accept(category="blue")
    refined = newkinds.refine(place / "run", place / "refined", time="20s")
    photo(place / "photos", "red", 80, "red")
    photo(place / "photos", "white", 81, "snow")
    (place / "photos/unlabeled/blue-4.png").rename(place / "photos/blue-4.png")
    after = newkinds.update(refined.run, page=False)
    now = {member.path: member for member in after.members}
    assert (now["red/red-80.png"].category, now["red/red-80.png"].given_label) == ("red", "red")
    assert (now["snow/white-81.png"].category, now["snow/white-81.png"].given_label) == ("snow", "snow")
    assert (now["blue-4.png"].category, now["blue-4.png"].status) == ("blue", "accepted")
    again = newkinds.update(refined.run, page=False)
    assert [m.category_id for m in again.members] == [m.category_id for m in after.members]
