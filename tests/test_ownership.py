"""newkinds replaces and removes only what it can prove it wrote, and never writes over an image."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds
from conftest import save_image
from newkinds.data.folder import _mention_run
from newkinds.errors import NewkindsError
from newkinds.files import checksum, temporary_of
from newkinds.ownership import (
    ELSEWHERE,
    MARKER,
    OF_RUN,
    NotOurs,
    OwnFiles,
    is_run_folder,
    remove_own_folder,
    require_lock,
    write_output,
)
from newkinds.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
QUICK = {"method": "frozen", "k": 3}
posix = pytest.mark.skipif(os.name != "posix", reason="needs links")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# -- the rule --------------------------------------------------------------------------------------------------------


def test_only_a_file_as_newkinds_wrote_it_is_replaced_or_removed(tmp_path: Path) -> None:
    own = OwnFiles(tmp_path)
    own.write("a.csv", "first")
    OwnFiles(tmp_path).write("a.csv", "second")
    (tmp_path / "a.csv").write_text("second, and a remark of mine")
    for again in (own, OwnFiles(tmp_path)):
        with pytest.raises(NotOurs, match="not as newkinds wrote it"):
            again.write("a.csv", "third")
        with pytest.raises(NotOurs, match="would be removed"):
            again.remove("a.csv")
    (tmp_path / "b.csv").write_text("mine")
    with pytest.raises(NotOurs, match="newkinds did not write it"):
        own.write("b.csv", "x")
    shutil.copy(tmp_path / "a.csv", tmp_path / "copy.csv")  # of ours, but where we have written nothing
    with pytest.raises(NotOurs):
        own.write("copy.csv", "x")
    assert (tmp_path / "a.csv").read_text() == "second, and a remark of mine"
    assert (tmp_path / "b.csv").read_text() == "mine"
    (tmp_path / "a.csv").write_text("first")  # as it once was
    own.remove("a.csv")
    own.remove("a.csv")  # which is not there any more
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("name", ["photo.JPG", "photo"])
def test_an_image_is_called_one(tmp_path: Path, name: str) -> None:
    photo = save_image(tmp_path / "p.jpg").rename(tmp_path / name)
    before = photo.read_bytes()
    with pytest.raises(NotOurs, match="never writes over an image"):
        write_output(photo, "path,category\n")
    assert photo.read_bytes() == before


def test_what_is_there_already_need_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("the same")
    OwnFiles(tmp_path).write("a.csv", "the same")
    with pytest.raises(NotOurs):  # and is not ours for that
        OwnFiles(tmp_path).write("a.csv", "another")


@pytest.mark.parametrize("theirs", ["sha", "text", "folder", "link"])
def test_a_list_of_somebody_else_is_not_added_to(tmp_path: Path, theirs: str) -> None:
    """`xxh64sum` writes lines just like ours."""
    target = tmp_path / "run"
    target.mkdir()
    ledger = target / OF_RUN
    (tmp_path / "elsewhere").write_text("0123456789abcdef  photo.jpg\n")
    if theirs == "folder":
        ledger.mkdir()
    elif theirs == "link":
        ledger.symlink_to(tmp_path / "elsewhere")
    else:
        ledger.write_text("0123456789abcdef  photo.jpg\n" if theirs == "sha" else "notes")
    save_image(target / "photo.jpg")
    before = contents(tmp_path)
    with pytest.raises(NotOurs, match=r"not newkinds' list"):
        OwnFiles(target, OF_RUN).write("a.csv", "x")
    with pytest.raises(NewkindsError, match="holds no run"):
        Run(target).refuse_other_contents()
    assert not is_run_folder(target)
    assert contents(tmp_path) == before


def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("notes")
    for out in ("file", "file/run", "file/a/run"):
        with pytest.raises(NewkindsError, match=r"file is no folder"):
            Run(tmp_path / out).refuse_other_contents()
    monkeypatch.setattr("os.access", lambda place, how: place != tmp_path)  # root may write everywhere
    with pytest.raises(NewkindsError, match=r"cannot write in .*choose another --out"):
        Run(tmp_path / "a" / "run").refuse_other_contents()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"], "nothing was made"


@pytest.mark.parametrize("half", ["", "\n", "\n# newk", "\n" + MARKER])
def test_a_list_that_was_only_begun_is_continued(tmp_path: Path, half: str) -> None:
    (tmp_path / OF_RUN).write_text(half)
    Run(tmp_path).refuse_other_contents()
    run = Run(tmp_path)
    run.write("config.yaml", "k: 3")
    run.write("config.yaml", "k: 4")
    assert is_run_folder(tmp_path)


def test_a_list_whose_marker_is_damaged_proves_itself_by_a_file(tmp_path: Path) -> None:
    OwnFiles(tmp_path, OF_RUN).write("config.yaml", "k: 3")
    ledger = tmp_path / OF_RUN
    ledger.write_text(ledger.read_text().replace("newkinds", "newkjnds"))
    assert is_run_folder(tmp_path)
    OwnFiles(tmp_path, OF_RUN).write("config.yaml", "k: 4")


@posix
def test_a_link_in_a_run_is_not_followed_to_what_is_not_ours(tmp_path: Path) -> None:
    photo = save_image(tmp_path / "photo.jpg")
    before = photo.read_bytes()
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    run.write("config.yaml", "k: 3")
    run.path("report.html").symlink_to(photo)
    run.path("README.md").symlink_to(tmp_path / "nowhere")
    for name in ("report.html", "README.md"):
        with pytest.raises(NotOurs):
            run.write(name, "<html>")
    assert photo.read_bytes() == before
    assert not (tmp_path / "nowhere").exists()
    run.write("model.safetensors", "large")
    shutil.move(run.path("model.safetensors"), tmp_path / "other disk")
    run.path("model.safetensors").symlink_to(tmp_path / "other disk")  # ours, and kept elsewhere
    Run(run.folder).write("model.safetensors", "larger")
    assert (tmp_path / "other disk").read_text() == "larger"


def test_names_of_any_letters(tmp_path: Path) -> None:
    for name in ("new\nline  .csv", "=cmd.csv", "back\\x41.csv", os.fsdecode(b"\xff.csv")):
        for content in ("one", "two"):
            OwnFiles(tmp_path).write(name, content)
        (tmp_path / name).write_text("mine")
        with pytest.raises(NotOurs):
            OwnFiles(tmp_path).write(name, "three")


def test_names_that_people_edited_are_kept_before_others_take_their_place(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for edited in ("first", "second"):
        run.write("categories.json", "[]")
        run.path("categories.json").write_text(edited)
    run.remove("categories.json")
    assert not run.path("categories.json").exists()
    assert run.path("categories-edited-1.json").read_text() == "first"
    assert run.path("categories-edited-2.json").read_text() == "second"


@pytest.mark.parametrize("theirs", ["trial/photo.jpg", "photo.jpg", "trial/.hidden", "link", ".lock"])
def test_a_folder_with_anything_of_somebody_else_is_not_deleted(tmp_path: Path, theirs: str) -> None:
    plan = tmp_path / "plan"
    trial = Run(plan / "trial")
    trial.folder.mkdir(parents=True)
    trial.write("config.yaml", "k: 3")
    temporary_of(trial.path("model.safetensors")).write_text("half")
    trial.path(".lock").touch()
    if theirs == "link":
        (tmp_path / "photos").mkdir()
        (plan / "link").symlink_to(tmp_path / "photos", target_is_directory=True)
    else:
        (plan / theirs).write_text("mine")
    before = contents(plan)
    assert not remove_own_folder(plan)
    assert contents(plan) == before
    (plan / theirs).unlink()
    assert remove_own_folder(plan)
    assert list(tmp_path.iterdir()) == ([tmp_path / "photos"] if theirs == "link" else [])


@pytest.mark.parametrize("theirs", ["file", "link"])
def test_a_lock_empties_no_file_of_that_name(tmp_path: Path, theirs: str) -> None:
    (tmp_path / "notes").write_text("mine")
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    if theirs == "file":
        run.path(".lock").write_text("mine")
    else:
        run.path(".lock").symlink_to(tmp_path / "notes")
    with pytest.raises(NotOurs, match="not a lock"), run.claimed():
        pass
    assert (run.path(".lock") if theirs == "file" else tmp_path / "notes").read_text() == "mine"
    assert require_lock(tmp_path / "free.lock") == tmp_path / "free.lock"


# -- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", ["plan/mine.jpg", "config.yaml", "recipe.yaml", "plan.json", "checksums.txt"])
@pytest.mark.parametrize("verb", ["discover", "tune", "train", "named"])
def test_a_folder_that_holds_something_else_is_refused_and_stays(
    photos: Path, tmp_path: Path, theirs: str, verb: str
) -> None:
    out = tmp_path / "out"
    (out / theirs).parent.mkdir(parents=True)
    (out / theirs).write_text("mine: 1")
    (out / ".drafts.tmp").mkdir()
    (out / ".drafts.tmp" / "draft").write_text("mine")
    before = contents(out)
    begin = {"tune": newkinds.tune, "train": newkinds.train}.get(verb, newkinds.discover)
    with pytest.raises(NewkindsError, match="not empty and holds no run"):
        begin(photos, out, **(QUICK if verb in ("train", "named") else {}))
    assert contents(out) == before


def test_hidden_files_stay(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in (".drafts.tmp/draft", ".DS_Store", ".model.safetensors.0123abcd.tmp"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")
    before = contents(out)
    for _ in range(2):
        newkinds.discover(photos, out, **QUICK)
    assert before.items() <= contents(out).items()


def test_check_replaces_its_own_table_alone(run_cli: Cli, photos: Path, tmp_path: Path) -> None:
    for _ in range(2):
        newkinds.check(photos, tmp_path / "checked", pixels_only=True)
    table = tmp_path / "checked" / "check.csv"
    table.write_text(table.read_text() + "my remark")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "check.csv").write_text("mine")
    for folder in ("checked", "mine"):
        before = contents(tmp_path / folder)
        status, _, err = run_cli("check", photos, "--pixels-only", "--out", tmp_path / folder)
        assert status == 1
        assert "would be replaced" in err
        assert contents(tmp_path / folder) == before


def test_a_prediction_replaces_an_earlier_one_alone(run_cli: Cli, trained_run: Path, tmp_path: Path) -> None:
    photo = save_image(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "b.png").write_bytes(b"no image")
    out, skipped = tmp_path / "p.csv", tmp_path / "p.skipped.csv"
    for _ in range(2):
        assert run_cli("predict", trained_run, photo.parent, "--out", out)[0] == 0
    assert skipped.is_file()
    assert run_cli("predict", trained_run, photo, "--out", out)[0] == 0
    assert not skipped.exists()
    for name in ("p.csv", "p.skipped.csv"):
        (tmp_path / name).write_text("mine")
        status, _, err = run_cli("predict", trained_run, photo, "--out", out)
        assert status == 1
        assert f"{tmp_path / name} would be replaced" in err
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_what_the_shell_makes_of_a_star_costs_no_photo(
    run_cli: Cli, trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        save_image(tmp_path / f"{name}.png")
    before = contents(tmp_path)
    monkeypatch.chdir(tmp_path)
    for arguments in (["--out", "a.png", "b.png"], ["b.png", "--out", "*.png"], ["b.png", "--out", "new.JPEG"]):
        status, _, err = run_cli("predict", trained_run, *arguments)
        assert status == 1
        assert "never writes over an image" in err
    assert contents(tmp_path) == before


@pytest.fixture
def run_of_photos(photos: Path, tmp_path: Path) -> Path:
    newkinds.discover(photos, tmp_path / "run", **QUICK)
    return tmp_path / "run"


def test_no_result_is_written_over_a_photo_of_the_run_or_a_file_of_it(
    run_cli: Cli, photos: Path, run_of_photos: Path, tmp_path: Path
) -> None:
    other = save_image(tmp_path / "other.png")
    table = photos / "red" / "linked.csv"
    table.symlink_to("0.png")
    before = {**contents(photos), **contents(run_of_photos)}
    for out in (photos / "red" / "0.png", table, run_of_photos / "report.html", run_of_photos / "README.md"):
        assert run_cli("predict", run_of_photos, other, "--out", out)[0] == 1
        if out.name != "report.html":
            assert run_cli("report", run_of_photos, "--out", out)[0] == 1
    for out in (photos / "red" / "0.png", photos / "unlabeled" / "red0.jpg"):
        assert run_cli("count", run_of_photos, "--plot", out)[0] == 1
    after = {**contents(photos), **contents(run_of_photos)}
    assert {name: after[name] for name in before} == before


def test_a_page_that_somebody_edited_stays(run_cli: Cli, run_of_photos: Path, tmp_path: Path) -> None:
    page = run_of_photos / "report.html"
    page.write_text("my page")
    status, _, err = run_cli("report", run_of_photos)
    assert status == 1
    assert "not as newkinds wrote it" in err
    assert page.read_text() == "my page"
    for _ in range(2):
        assert run_cli("report", run_of_photos, "--out", tmp_path / "page.html")[0] == 0


def test_a_run_among_its_photos_is_resumed_and_no_class(
    run_cli: Cli, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos)
    quick = ("--method", "frozen", "--k", "3")
    assert run_cli("discover", ".", *quick)[0] == 0
    first = Run(photos / "newkinds-photos")
    first.remove("assignments.csv")  # as if it had been interrupted
    _mention_run.cache_clear()
    status, _, err = run_cli("discover", ".", *quick)
    assert status == 0, err
    assert "newkinds-photos is a run of newkinds among the images" in err
    assert run_cli("count", first.folder, "--plot", photos / "red" / "curve.png")[0] == 0
    status, _, err = run_cli("discover", ".", "--out", "other", *quick)
    assert status == 0, err
    assert "has no image" not in err
    for name in ("newkinds-photos", "other"):
        found = newkinds.Discovery.read(photos / name)
        assert [category.name for category in found.known] == ["green", "red"]
        assert len(found.members) == 21
    assert len(newkinds.predict(photos / "other", photos)) == 21
    status, _, err = run_cli("discover", "newkinds-photos", "--out", "third", *quick)
    assert status == 1
    assert "is a run of newkinds, not a folder of images" in err


def test_a_photo_with_the_name_of_a_drawn_one_is_a_photo(photos: Path) -> None:
    (photos / "red" / ELSEWHERE).write_text(f"{MARKER}\n{checksum(b'a curve')}  0.png")
    assert "red/0.png" in newkinds.data.load_table({"name": "folder", "path": str(photos)}).paths


# -- all of the code -------------------------------------------------------------------------------------------------

# Where files are deleted, replaced or opened to be written, and why that is right there.
ALLOWED = {
    "files.py": "writes whole files and removes signed leftovers",
    "ownership.py": "the rule",
    "data/loaded.py": "in a temporary folder",
    "discovery/editlog.py": "appends to the log of a run, which is set aside under a free name",
    "discovery/export/base.py": "a new folder or file, which is renamed to where nothing is",
    "discovery/export/image_export.py": "inside such a new folder",
    "discovery/export/imagefolder.py": "inside such a new folder",
    "discovery/export/label_studio.py": "inside such a new folder",
    "discovery/export/model_folder.py": "inside such a new folder",
    "discovery/export/tables.py": "such a new file",
    "discovery/export/torch.py": "inside such a new folder",
    "discovery/export/tree.py": "inside such a new folder",
    "discovery/studio/pictures.py": "pictures named by a digest, in the folder of caches",
    "discovery/studio/server.py": "in a temporary folder",
    "experiments/side_by_side.py": "appends to the logs of a grid, in a folder of their own",
    "process.py": "the null device",
    "runs/directory.py": "an earlier result, in a new folder",
    "training/store.py": "in a folder of caches named by a digest",
}
DANGEROUS = {
    "unlink", "rmtree", "rmdir", "replace", "rename", "renames", "write_text", "write_bytes", "copyfile", "copy",
    "copytree", "move", "truncate", "symlink", "symlink_to", "link", "hardlink_to", "save", "savefig", "tofile",
    "write_whole", "append_line", "save_file",
}  # fmt: skip
OF_OTHER_THINGS = {"replace", "copy", "move", "save", "savefig"}  # strings, dataclasses, edits, buffers in memory


def dangers(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        of = (
            node.func.value.id if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) else ""
        )
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "open" and (of in ("", "os") or isinstance(node.func, ast.Attribute)):
            modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
            if any(isinstance(mode, str) and mode and set(mode) <= set("wxab+t") and mode != "b" for mode in modes):
                found.add("open to write")
        elif name == "rename" and of != "os" and len(node.args) + len(node.keywords) > 1:
            continue  # a category
        elif name in DANGEROUS and (name not in OF_OTHER_THINGS or of in ("os", "shutil")):
            found.add(name)
    return found


def test_the_rule_is_in_one_place() -> None:
    """Whoever deletes or overwrites elsewhere goes through `ownership`, or has a reason that stands above."""
    package = Path(newkinds.__file__).parent
    places = {
        file.relative_to(package).as_posix(): found
        for file in package.rglob("*.py")
        if (found := dangers(ast.parse(file.read_text(encoding="utf-8"))))
    }
    assert {place: found for place, found in places.items() if place not in ALLOWED} == {}
    assert set(ALLOWED) <= set(places), "a reason for what is not there any more"


def test_the_walk_sees_what_is_dangerous() -> None:
    code = "p.unlink(); os.replace(a, b); open(p, 'w'); shutil.rmtree(p); p.open('ab'); write_whole(p, c); p.rename(q)"
    assert dangers(ast.parse(code)) == {"unlink", "replace", "open to write", "rmtree", "write_whole", "rename"}
    assert dangers(ast.parse("text.replace(a, b); open(p, 'rb'); open(p); replace(config, k=3)")) == set()
