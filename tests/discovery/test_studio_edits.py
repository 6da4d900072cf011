"""Corrections in the studio: every edit, two windows, a run that is discovered again, the model when it is needed."""

import hashlib
import io
import random
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

import newkinds
from newkinds.discovery.categories import Discovery
from newkinds.discovery.studio.sight import WITHOUT_FIELDS
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.errors import NewkindsError
from windows import GREY, IMAGES, PER_CLASS, Studio, Window, strange_run

ODD_NAMES, GREY_ONES = 3, 4  # ids of the new categories


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return strange_run(tmp_path_factory.mktemp("studio"))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.fixture
def window(run: Path) -> Window:
    return Window(Studio(run))


def test_every_edit_is_in_the_run_as_soon_as_it_is_answered(window: Window, run: Path) -> None:
    """Each step is compared with what another reader of the run sees."""

    def others() -> dict[int, tuple[str, int]]:
        return {c.id: (c.name, c.size) for c in Discovery.read(run).categories}

    rows = window.rows(GREY_ONES)
    assert "renamed" in window.edit(edit="rename", category=GREY_ONES, name='<b>"grey"</b> & ко')["says"]
    assert others()[GREY_ONES] == ('<b>"grey"</b> & ко', GREY)
    window.edit(edit="move", rows=rows[:2], to=ODD_NAMES)
    assert (others()[ODD_NAMES][1], others()[GREY_ONES][1]) == (5 + 2, GREY - 2)
    window.edit(edit="move", rows=rows[2:4], name="fresh")
    fresh = max(window.names())
    assert others()[fresh] == ("fresh", 2)
    window.edit(edit="accept", rows=rows[:1])
    window.edit(edit="accept", category=fresh)
    assert [m.status for m in Discovery.read(run).members].count("accepted") == 3
    assert window.card(fresh)["decided"] == 2
    window.edit(edit="junk", rows=rows[4:5])
    assert window.state["junk"] == 1
    assert window.rows(-1) == rows[4:5]
    window.edit(edit="merge", categories=[fresh], into=0)
    assert fresh not in others()
    assert others()[0][1] == PER_CLASS + 2
    parts = window.ask("/api/parts/1?into=2")["parts"]
    window.edit(edit="split", category=1, parts=[[image["row"] for image in part] for part in parts])
    assert others()[1][1] == len(parts[0])
    assert others()[max(others())][1] == len(parts[1])
    window.edit(edit="junk", category=2)
    assert 2 not in others()
    assert sum(size for _, size in others().values()) + window.state["junk"] == IMAGES
    kinds = [entry["says"].split()[0] for entry in window.ask("/api/log")["edits"]][::-1]
    assert kinds == ["renamed", "moved", "moved", "accepted", "accepted", "junked", "merged", "split", "junked"]
    while window.state["undo"]:
        window.edit(edit="undo")
    original = Discovery.read(run)
    assert {c.id: (c.name, c.size) for c in original.found_categories} == others()
    assert all(member.status == "" for member in original.members)
    for _ in range(9):
        window.edit(edit="redo")
    assert window.state["redo"] is None
    assert 2 not in others()


def test_a_split_is_exactly_what_was_shown(window: Window, run: Path) -> None:
    rows = window.rows(GREY_ONES)
    window.edit(400, edit="split", category=GREY_ONES, parts=[rows[:3], rows[4:]])
    window.edit(edit="split", category=GREY_ONES, parts=[rows[:3], rows[3:]])
    assert sorted(window.rows(GREY_ONES)) == sorted(rows[:3])
    assert sorted(window.rows(max(window.names()))) == sorted(rows[3:])
    assert "cannot be split" in window.ask(f"/api/parts/{GREY_ONES}?into=9", status=400)["error"]
    assert window.ask(f"/api/parts/{GREY_ONES}?into=x", status=400)["error"]


def test_two_windows_do_not_overwrite_each_other(run: Path) -> None:
    studio = Studio(run)
    one, two = Window(studio), Window(studio)
    one.edit(edit="rename", category=GREY_ONES, name="first")
    assert "somebody else" in two.edit(409, edit="rename", category=GREY_ONES, name="second")["error"]
    assert Discovery.read(run).category(GREY_ONES).name == "first"
    assert two.ask("/api/version")["revision"] == 1, "so that it asks for the state again"
    assert two.look()["revision"] == 1
    two.edit(edit="rename", category=GREY_ONES, name="second")
    one.edit(edit="rename", category=0, name="something else")  # of which the other said nothing
    assert Discovery.read(run).category(GREY_ONES).name == "second"
    two.look()
    one.edit(edit="merge", categories=[GREY_ONES], into=ODD_NAMES)
    assert two.edit(400, edit="rename", category=GREY_ONES, name="third")["error"].endswith("now.")


def test_two_servers_and_the_command_line_see_each_other(run: Path) -> None:
    one, two = Window(Studio(run)), Window(Studio(run))
    one.edit(edit="rename", category=GREY_ONES, name="by one")
    assert two.look()["revision"] == 1
    Discovery.read(run).rename("by one", "by hand")
    assert one.look()["categories"][GREY_ONES]["name"] == "by hand"
    assert two.edit(409, edit="undo")["error"]
    two.look()
    two.edit(edit="undo")
    assert one.look()["categories"][GREY_ONES]["name"] == "by one"


def test_a_run_that_is_discovered_again_is_shown_again(run: Path, made: Path) -> None:
    window = Window(Studio(run))
    window.edit(edit="rename", category=0, name="before")
    text = (run / "assignments.csv").read_text().splitlines()
    shutil.copy(run / "categories.json", run / "copy.json")
    from newkinds.runs.directory import RunDirectory

    (run / "edits.jsonl").rename(run / "edits-1.jsonl")
    RunDirectory(run).write("assignments.csv", "\n".join([text[0], *reversed(text[1:])]) + "\n")
    rows = RunDirectory(run).path("embedding.safetensors").read_bytes()
    assert rows, "its rows no longer fit, but nothing here asks for them"
    assert "found again" in window.edit(409, edit="move", rows=[0], to=1)["error"], "row 0 is another image now"
    assert not (run / "edits.jsonl").exists()
    assert window.look()["revision"] == 0
    first = window.ask("/api/image/0")["path"]
    assert first == Discovery.read(run).members[0].path
    window.edit(edit="move", rows=[0], to=1)
    assert Discovery.read(run).members[0].category_id == 1


def test_a_damaged_log_is_a_sentence_and_nothing_is_lost(window: Window, run: Path) -> None:
    window.edit(edit="rename", category=0, name="kept")
    with open(run / "edits.jsonl", "ab") as log:
        log.write(b'\n{"n": 2, "edit": "ren')  # a crash in the middle of a line
    assert window.look()["categories"][0]["name"] == "kept"
    window.edit(edit="rename", category=1, name="also kept")
    assert [c.name for c in Discovery.read(run).categories][:2] == ["kept", "also kept"]
    newer = '{"after":"","edits":99,"n":0,"of":"x"}'
    check = hashlib.sha256(newer.encode()).hexdigest()[:8]
    (run / "edits.jsonl").write_text(f'{newer[:-1]},"check":"{check}"}}\n')
    assert "another version" in window.ask("/api/state", status=400)["error"]
    assert "another version" in window.edit(400, edit="undo")["error"]


def test_a_run_without_an_embedding_says_so_where_it_is_needed(run: Path) -> None:
    (run / "embedding.safetensors").unlink()
    window = Window(Studio(run))
    window.studio.prepare()
    assert len(window.look()["categories"]) == 5
    for path in ("/api/nearest/0", "/api/similar/0", "/api/parts/0", "/api/map"):
        assert (
            "embedding" in window.ask(path, status=400)["error"] or "features" in window.ask(path, status=400)["error"]
        )
    window.edit(edit="rename", category=0, name="works")


def test_marks_are_there_once_they_are_prepared(window: Window) -> None:
    before = window.look()
    window.studio.prepare()
    after = window.look()
    assert (before["marked"], after["marked"]) == (False, True)
    assert after["prepared"] > before["prepared"], "so that windows ask again"
    assert window.card(GREY_ONES)["marks"] == []
    window.edit(edit="move", rows=window.rows(GREY_ONES)[2:], to=ODD_NAMES)
    assert not window.state["marked"], "an edit does not wait for them"
    ends = time.monotonic() + 10
    while not window.look()["marked"] and time.monotonic() < ends:
        time.sleep(0.1)
    assert "small" in window.card(GREY_ONES)["marks"], "of what is there now"


# -- what needs the model --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeing(trained_run: Path) -> Window:
    """A studio of a run with a model, which has CPF."""
    return Window(Studio(trained_run))


def test_a_dropped_image_of_the_run_finds_itself(seeing: Window, trained_run: Path, tmp_path: Path) -> None:
    found = Discovery.read(trained_run)
    original = seeing.studio.pictures.opened(3)
    file = io.BytesIO()
    original.save(file, "PNG")
    (tmp_path / "dropped.png").write_bytes(file.getvalue())
    answer = seeing.client.post("/api/look", content=file.getvalue(), headers={"content-type": "image/png"})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["images"][0]["row"] == 3
    assert said["images"][0]["score"] == pytest.approx(1, abs=2e-3)
    assert said["category"] == found.found_members[3].category_id
    predicted = newkinds.predict(trained_run, [tmp_path / "dropped.png"])[0].confidence
    assert said["sure"] == pytest.approx(predicted, abs=1e-3)
    assert said["sure"] > found.found_members[3].confidence - 1e-3  # in the run it is compared with the others alone
    assert seeing.ask("/api/model") == {"state": "ready", "says": ""}


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, b"GIF89a"])
def test_a_dropped_file_that_is_no_image_is_a_sentence(seeing: Window, content: bytes) -> None:
    answer = seeing.client.post("/api/look", content=content, headers={"content-type": "image/png"})
    assert answer.status_code == 400
    assert len(answer.json()["error"]) > 10


def test_a_decompression_bomb_is_not_opened(seeing: Window) -> None:
    file = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(file, "PNG")
    answer = seeing.client.post("/api/look", content=file.getvalue(), headers={"content-type": "image/png"})
    assert "megapixels" in answer.json()["error"]


def test_fields_are_drawn_over_an_image(seeing: Window) -> None:
    assert seeing.state["fields"]
    drawn = seeing.ask("/api/fields/2")
    assert drawn["titles"][:2] == ["image", "winners"]
    assert "share" in drawn["says"].lower()
    for place in range(len(drawn["titles"])):
        with Image.open(io.BytesIO(seeing.client.get(f"/field/2/{place}.png").content)) as picture:
            assert picture.format == "PNG"
    assert seeing.client.get(f"/field/2/{len(drawn['titles'])}.png").status_code == 404
    assert seeing.ask("/api/fields/99999", status=400)["error"]


def test_without_a_model_nothing_is_offered_that_needs_one(window: Window) -> None:
    assert (window.state["model"], window.state["fields"]) == (False, False)
    answer = window.client.post("/api/look", content=b"GIF89a", headers={"content-type": "image/gif"})
    assert answer.status_code == 400


def test_it_is_known_without_torch_which_organizers_have_fields() -> None:
    import torch

    from newkinds.encoders.tokens import Tokens

    tokens = Tokens(torch.randn(2, 24), torch.randn(2, 9, 24), (3, 3))
    for name in ORGANIZERS:
        organizer = ORGANIZERS[name](dim=24)
        organizer.start(tokens)
        has = organizer.eval().organize(tokens, details=True).field is not None
        assert has == (name not in WITHOUT_FIELDS), name


def test_the_first_page_needs_no_torch(run: Path) -> None:
    import subprocess

    code = (
        "import sys\n"
        "from newkinds.discovery.studio.server import app_of\n"
        "from newkinds.discovery.studio.state import Studio\n"
        f"studio = Studio({str(run)!r})\napp_of(studio, 1)\nstudio.prepare()\nstudio.state()\nstudio.members(0)\n"
        "studio.nearest(0)\nstudio.similar(0)\nstudio.parts(1, 2)\nstudio.map()\nstudio.pictures.picture(0)\n"
        "print([name for name in ('torch', 'torchvision', 'timm') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stdout.strip() == "[]", said.stderr


def test_what_is_shown_edit_by_edit_is_what_a_reader_sees_at_once(run: Path) -> None:
    """After an edit only what it changed is made again; another reader makes all of it, and the log is the judge."""
    found, rng = Discovery.read(run), random.Random(0)
    for number in range(80):
        ids, paths = [c.id for c in found.categories], [m.path for m in found.members]
        one, some = rng.choice(ids), rng.sample(paths, 3)
        edits: list[Callable[[], str]] = [
            partial(found.rename, one, f"name {number}"), partial(found.merge, rng.sample([*ids, one], 2)),
            partial(found.split, one, 2), partial(found.move, some, one), partial(found.junk, some[:1]),
            partial(found.move, some, f"made {number}", new=True), partial(found.accept, category=one), found.undo,
            found.redo,
        ]  # fmt: skip
        with suppress(NewkindsError):  # nothing to redo, two that are one …
            rng.choice(edits)()
        again, state = Discovery.read(run), found.corrections()
        assert (again.members, again.categories) == (found.members, found.categories)
        assert [m.category_id for m in found.members] == [state.category_of(path) for path in paths]
        for category in found.categories:
            inside = [m for m in found.members if m.category_id == category.id]
            assert (category.size, category.name) == (len(inside), state.names[category.id])
            assert {m.category for m in inside} <= {category.name}
