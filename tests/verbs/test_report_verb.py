"""`newkinds report`: from files alone, without torch; images that are gone, damaged files. `predict --report`."""

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds
from conftest import save_image
from newkinds.discovery.categories import Discovery
from newkinds.files import temporary_of
from newkinds.runs.directory import RunDirectory
from pages import Document
from pictured import pictured

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return pictured(tmp_path)


@pytest.fixture
def trained(trained_run: Path, tmp_path: Path) -> Path:
    """A copy of a run that a model made."""
    return Path(shutil.copytree(trained_run, tmp_path / "trained"))


def text_of(file: Path) -> str:
    return " ".join(Document(file.read_text("utf-8")).text.split())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_edits_are_on_the_page_and_torch_is_not_imported(run: Path) -> None:
    Discovery.read(run).rename("new-1", "heron")
    code = """
import sys
from newkinds.cli import main
status = main(sys.argv[1:])
print(sorted({"torch", "torchvision", "timm"} & set(sys.modules)))
sys.exit(status)
"""
    done = subprocess.run([sys.executable, "-c", code, "report", run], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"look at {run / 'report.html'}", "[]"]
    said = text_of(run / "report.html")
    assert "heron #2" in said
    assert "with 1 correction by hand" in said
    assert "heron" in (run / "README.md").read_text("utf-8")
    RunDirectory(run).verified("report.html")


def test_the_page_of_discover_is_the_one_that_report_makes_again(trained: Path, trained_run: Path) -> None:
    newkinds.report(trained)
    page = (trained / "report.html").read_text("utf-8")
    assert page == (trained_run / "report.html").read_text("utf-8").replace(str(trained_run), str(trained))
    assert "Primitive fields" in page, "which only the model can draw: they were kept"


@pytest.mark.parametrize("name", ["described.json", "embedding.safetensors", "fields.safetensors"])
def test_what_the_page_is_made_of_must_be_there(name: str, trained: Path, run_cli: Cli) -> None:
    (trained / name).unlink()
    status, _, said = run_cli("report", trained)
    assert status == 1
    assert f"{name} is missing" in said


def test_another_file_leaves_the_run_as_it_is_even_if_that_cannot_be_written(run: Path, run_cli: Cli) -> None:
    before = contents(run)
    for file in (run, *run.iterdir()):
        file.chmod(0o555 if file.is_dir() else 0o444)
    out = run.parent / "pages" / "photos.html"
    try:
        status, said, _ = run_cli("report", run, "--out", out)
    finally:
        run.chmod(0o755)
    assert (status, said) == (0, f"look at {out}\n")
    assert "4 new categories" in text_of(out)
    assert contents(run) == before


def test_a_run_that_cannot_be_written_says_what_to_do(run: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("newkinds.files.os.replace", refused)  # root may write anywhere
    status, _, said = run_cli("report", run)
    assert status == 1
    assert "Read-only file system" in said
    assert "name a file by --out" in said


@pytest.mark.parametrize("what", ["assignments.csv", "edits.jsonl", "README.md", "image"])
def test_the_page_never_replaces_what_it_is_made_of(run: Path, run_cli: Cli, what: str) -> None:
    found = Discovery.read(run)
    found.rename("new-1", "heron")
    newkinds.report(run)
    target = run.parent / "photos" / found.members[3].path if what == "image" else run / what
    before = target.read_bytes()
    status, _, said = run_cli("report", run, "--out", target)
    assert status == 1
    assert "would be replaced, but it is an input" in said
    assert target.read_bytes() == before
    status, _, said = run_cli("report", run, "--out", run.parent / "photos")
    assert "is a folder: name the file to write" in said


def test_images_that_were_deleted_are_grey_and_said_to_be(run: Path, run_cli: Cli) -> None:
    found = Discovery.read(run)
    gone = [found.members[0].path, found.members[8].path]
    for path in gone:
        (run.parent / "photos" / path).unlink()
    (run.parent / "photos" / found.members[9].path).write_bytes(b"no image any more")
    assert run_cli("report", run)[0] == 0
    document = Document((run / "report.html").read_text("utf-8"))
    grey = {tile["title"] for tile in document.all("i") if tile.get("class") == "gone"}
    assert grey == {*gone, found.members[9].path}
    assert "3 images could not be read any more" in document.text


def test_a_folder_that_has_moved_is_missed_then_named(run: Path, run_cli: Cli) -> None:
    moved = (run.parent / "photos").rename(run.parent / "elsewhere")
    status, _, said = run_cli("report", run)
    assert status == 0
    assert "--images FOLDER" in said
    document = Document((run / "report.html").read_text("utf-8"))
    assert "The page has no pictures: the images of" in document.text
    assert {tile["class"] for tile in document.all("i") if tile.get("role")} == {"gone"}
    assert run_cli("report", run, "--images", moved)[0] == 0
    document = Document((run / "report.html").read_text("utf-8"))
    assert "gone" not in {tile.get("class") for tile in document.all("i")}
    assert "no pictures" not in document.text
    status, _, said = run_cli("report", run, "--images", run.parent / "nowhere")
    assert status == 1
    assert "there is no folder" in said


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _rows_of_others(file: Path) -> None:
    import numpy as np
    from safetensors.numpy import save

    RunDirectory(file.parent).write(file.name, save({"embedding": np.eye(7, dtype=np.float16)}))


def _of_no_use(file: Path) -> None:
    RunDirectory(file.parent).write(file.name, '{"known": 3}')


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        ("embedding.safetensors", _cut, "its checksum is not in"),
        ("embedding.safetensors", _rows_of_others, "has 7 rows, assignments.csv 36"),
        ("described.json", _cut, "its checksum is not in"),
        ("described.json", _of_no_use, "restore it from a copy, or run newkinds discover again"),
        ("assignments.csv", _cut, "its checksum is not in"),
        ("assignments.csv", Path.unlink, "has not assigned its images yet"),
        ("categories.json", _cut, "cannot read"),
    ],
)
def test_what_is_damaged_is_named_and_the_old_page_stays(
    run: Path, run_cli: Cli, name: str, damage: Callable[[Path], None], sentence: str
) -> None:
    RunDirectory(run).write("report.html", "the page as it was")
    damage(run / name)
    status, out, said = run_cli("report", run)
    assert (status, out) == (1, "")
    assert sentence in said
    assert name in said
    assert "Traceback" not in said
    assert (run / "report.html").read_text() == "the page as it was"


def test_half_a_page_left_by_a_crash_is_no_harm(run: Path, run_cli: Cli) -> None:
    temporary_of(run / "report.html").write_text("<!doctype html><ht")
    with (run / "checksums.txt").open("a") as file:
        file.write("\n0123  report.html")  # noted before the file was written, which never happened
    assert run_cli("report", run)[0] == 0
    assert "4 new categories" in text_of(run / "report.html")
    assert not list(run.glob(".*.tmp"))


def test_what_is_no_run_is_said_to_be_none(tmp_path: Path, run_cli: Cli) -> None:
    status, _, said = run_cli("report", tmp_path)
    assert status == 1
    assert "is not a run directory" in said


def test_eval_renders_the_page_again_with_its_figures(trained: Path, run_cli: Cli) -> None:
    found = Discovery.read(trained)
    unlabelled = next(member for member in found.members if member.given_label is None)
    found.move([unlabelled.path], next(c.id for c in found.categories if c.id != unlabelled.category_id))
    assert run_cli("eval", trained)[0] == 0
    record = json.loads((trained / "evaluation.json").read_text("utf-8"))
    assert record["state"]["edits"] == 1
    said = text_of(trained / "report.html")
    for name, metrics in (("as the model found them", "as_found"), ("with corrections by hand", "metrics")):
        figures = (record[metrics][f"acc_{part}"] for part in ("all", "old", "new"))
        assert f"{name} {' '.join(f'{100 * figure:.1f} %' for figure in figures)}" in said
    assert "with 1 correction by hand" in said
    assert "Corrected by hand 1 time" in (trained / "README.md").read_text("utf-8")
    found.undo()
    newkinds.report(trained)
    said = text_of(trained / "report.html")
    assert "with corrections by hand" not in said
    assert "1 edit was made since" in said


def test_eval_of_a_run_without_a_page_makes_none_and_a_page_that_fails_costs_no_figures(
    trained: Path, run_cli: Cli
) -> None:
    (trained / "report.html").unlink()
    assert run_cli("eval", trained)[0] == 0
    assert not (trained / "report.html").is_file()
    (trained / "report.html").write_text("the page as it was")
    _cut(trained / "embedding.safetensors")
    status, out, said = run_cli("eval", trained)
    assert status == 0
    assert "ACC" in out
    assert "report.html does not show these figures" in said


# -- newkinds predict --report -------------------------------------------------------------------------------------


@pytest.fixture
def week(tmp_path: Path) -> Path:
    """Photos that a run of creatures has never seen, one of which is torn."""
    for number in range(3):
        save_image(tmp_path / "week" / f"{number}.png", (60 * number, 40, 200))
    (tmp_path / "week" / "torn.jpg").write_bytes(b"no image")
    return tmp_path / "week"


def test_what_was_predicted_is_on_a_page(trained: Path, week: Path, tmp_path: Path, run_cli: Cli) -> None:
    before = contents(trained)
    page = tmp_path / "pages" / "week.html"
    status, said, beside = run_cli("predict", trained, week, "--report", page)
    assert (status, f"look at {page}" in beside) == (0, True)
    rows = {row["path"]: row for row in csv.DictReader(said.splitlines())}
    assert len(rows) == 3, "the table is printed as ever"
    document = Document(page.read_text("utf-8"))
    shown = {tile["title"]: tile for tile in document.all("i") if tile.get("role")}
    assert set(shown) == set(rows)
    assert all((tile["class"] or "").startswith("s") for tile in shown.values()), "with a picture each"
    said = text_of(page)
    assert "torn.jpg" in said
    assert f"newkinds update {trained} {week}" in said
    strangers = sum(float(row["unlike"]) > 1 for row in rows.values())
    assert f"{3 - strangers} image" in said
    assert contents(trained) == before, "nothing is written into the run"

    found = newkinds.predict(trained, [week], report=page)
    assert {p.path: f"{p.confidence:.4f}" for p in found} == {path: row["confidence"] for path, row in rows.items()}


def test_a_page_of_predictions_replaces_nothing_that_is_not_ours(
    trained: Path, week: Path, tmp_path: Path, run_cli: Cli
) -> None:
    (tmp_path / "notes.html").write_text("mine")
    for arguments, why in [
        (["--report", tmp_path / "notes.html"], "newkinds did not write it"),
        (["--report", week / "0.png"], "input"),
        (["--report", tmp_path / "new.png"], "named like an image"),
        (["--report", tmp_path], "is a folder"),
        (["--report", trained / "report.html"], "input"),
        (["--out", tmp_path / "p.csv", "--report", tmp_path / "p.csv"], "written by --out"),
    ]:
        before = contents(tmp_path)
        status, _, said = run_cli("predict", trained, week, *arguments)
        assert (status, why in said) == (1, True), said
        assert contents(tmp_path) == before


def test_a_run_without_categories_is_refused_before_the_work(trained: Path, week: Path, tmp_path: Path) -> None:
    (trained / "assignments.csv").unlink()
    with pytest.raises(newkinds.NewkindsError, match="has not assigned its images"):
        newkinds.predict(trained, week, report=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
