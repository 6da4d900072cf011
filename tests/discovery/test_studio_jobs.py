"""Jobs of the studio: commands of their own, one at a time, that say how far they are, can be stopped and end with the
studio; and images that are added to a run."""

import csv
import io
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from newkinds.discovery.categories import Discovery
from newkinds.discovery.export.tables import assignments_text
from newkinds.discovery.studio.added import file_name
from newkinds.discovery.studio.jobs import Job, formats
from newkinds.runs.directory import RunDirectory
from windows import HERE, IMAGES, Served, Studio, TestClient, Window, strange_run

PATIENCE = 40  # s, on a machine that does other things as well


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return strange_run(tmp_path)


@pytest.fixture
def window(run: Path) -> Window:
    return Window(Studio(run))


def until(seen: Callable[[], Any]) -> Any:
    ends = time.monotonic() + PATIENCE
    while not (found := seen()):
        assert time.monotonic() < ends
        time.sleep(0.05)
    return found


def ended(window: Window) -> dict[str, Any]:
    return until(lambda: (job := window.ask("/api/job"))["state"] != "running" and job)


def tell(window: Window, path: str, status: int = 200, **wanted: Any) -> Any:
    answer = window.client.post(path, json=wanted)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_an_export_is_written_beside_the_run_and_never_over_another(window: Window, run: Path) -> None:
    assert window.ask("/api/job") == {}
    assert set(window.ask("/api/jobs")["formats"]) == set(formats()) >= {"csv", "folders", "coco", "onnx"}
    window.edit(edit="rename", category=4, name="grey ones")
    before = window.ask("/api/version")["job"]
    job = tell(window, "/api/job/start", job="export", to="csv")
    assert job["state"] == "running"
    assert window.ask("/api/version")["job"] not in ("", before), "other windows hear of it"
    job = ended(window)
    out = run.with_name("run-csv.csv")
    assert (job["state"], str(out) in job["says"]) == ("done", True)
    assert out.read_text(encoding="utf-8") == assignments_text(Discovery.read(run))
    assert "grey ones" in {row["category"] for row in csv.DictReader(io.StringIO(out.read_text(encoding="utf-8")))}
    tell(window, "/api/job/start", job="export", to="csv")
    assert "run-csv-2.csv" in ended(window)["says"]


def test_what_is_no_job_is_a_sentence_and_an_error_is_the_commands_own(window: Window) -> None:
    for wanted in (
        {}, {"job": "rm"}, {"job": ["update"]}, {"job": "export", "to": "../x"}, {"job": "export", "to": []},
        {"job": "refine", "time": "9y"}, {"job": "names", "words": 3}, {"job": "names", "clip": "x\0"},
    ):  # fmt: skip
        assert tell(window, "/api/job/start", 400, **wanted)["error"]
    tell(window, "/api/job/stop", 400)
    assert window.ask("/api/job") == {}
    tell(window, "/api/job/start", job="report")
    assert "another job is running" in tell(window, "/api/job/start", 400, job="report")["error"]
    job = ended(window)
    assert job["state"] == "failed"
    assert "described.json is missing" in job["says"], "this run was drawn"
    assert not job["says"].startswith("error")
    assert job["lines"][-1] == f"error: {job['says']}"
    assert window.ask(f"/api/job?after={job['count']}")["lines"] == []


def test_jobs_are_for_those_who_have_the_token_and_from_its_own_page(window: Window) -> None:
    stranger = TestClient(window.app, base_url=HERE)
    for path in ("/api/job/start", "/api/job/stop", "/api/add", "/api/images"):
        assert stranger.post(path, json={"job": "report"}).status_code == 403
        answer = window.client.post(path, json={"job": "report"}, headers={"origin": "http://evil.example"})
        assert answer.status_code == 403
        form = window.client.post(path, content=b"job=report", headers={"content-type": "text/plain"})
        assert form.status_code in (400, 415)
    assert stranger.get("/api/job").status_code == 403
    assert window.ask("/api/job") == {}


def test_a_job_is_stopped_as_by_ctrl_c(tmp_path: Path) -> None:
    job = Job(1, "discover", ["discover", "creatures", "--backbone", "tiny", "--out", str(tmp_path / "run")])
    assert job.status(0)["state"] == "running"
    job.stop()
    status = until(lambda: (now := job.status(0))["state"] != "running" and now)
    assert status["state"] == "stopped"
    assert any(line.startswith("interrupted") for line in status["lines"]), "it ended in good order"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see a process of another's")
def test_a_job_ends_with_the_studio_however_that_ends(run: Path) -> None:
    for how in (signal.SIGKILL, signal.SIGINT):
        studio = Served(run)
        body = json.dumps({"job": "names"}).encode()
        assert studio.ask("POST", "/api/job/start", body, **{"Content-Type": "application/json"})[0] == 200
        children = Path(f"/proc/{studio.process.pid}/task")
        (child,) = (pid for task in children.iterdir() for pid in (task / "children").read_text().split())
        studio.end(how)
        until(lambda child=child: not os.path.exists(f"/proc/{child}/fd") or not os.listdir(f"/proc/{child}/fd"))


# -- adding an image ------------------------------------------------------------------------------------------------


def picture(colour: tuple[int, int, int] = (3, 4, 5)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 40), colour).save(file, "PNG")
    return file.getvalue()


def add(window: Window, content: bytes, name: str, status: int = 200) -> Any:
    answer = window.client.post("/api/add", params={"name": name}, content=content)
    assert answer.status_code == status, answer.text
    window.client.post("/api/job/stop", json={})  # the update itself is another test's
    ended(window)
    return answer.json()


def test_an_added_image_is_copied_to_the_others_and_over_none(window: Window, run: Path) -> None:
    photos = run.parent / "photos"
    before = {file: file.read_bytes() for file in photos.rglob("*") if file.is_file()}
    assert len(before) == IMAGES
    assert "cannot be looked at" in add_bad(window)["error"]
    first = Path(add(window, picture(), "../../evil/plain.png")["file"])
    assert first == photos / "unlabeled" / "plain-2.png", "there is a plain.png"
    assert first.read_bytes() == picture()
    other = Path(add(window, picture((9, 9, 9)), "\u202ea<b>\n#x.exe")["file"])
    assert (other.parent, other.suffix) == (photos / "unlabeled", ".png")
    assert {file: file.read_bytes() for file in before} == before
    assert sorted(set(photos.rglob("*.png")) - set(before)) == sorted([first, other])
    assert window.ask("/api/job")["job"] == "update"


def add_bad(window: Window) -> Any:
    answer = window.client.post("/api/add", params={"name": "x.png"}, content=b"\x89PNG no image")
    assert answer.status_code == 400
    return answer.json()


def test_where_there_is_no_folder_of_images_the_run_keeps_it(run: Path) -> None:
    settings = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    listed = {**settings, "data": {"name": "csv", "path": str(run.parent / "photos" / "list.csv")}}
    shutil.copytree(run, moved := run.with_name("listed"))
    RunDirectory(moved).write("config.yaml", yaml.safe_dump(listed))
    window = Window(Studio(moved))
    assert Path(add(window, picture(), "one.jpg")["file"]) == moved / "added" / "one.jpg"


@pytest.mark.parametrize(
    ("called", "made"),
    [
        ("photo.JPG", "photo.jpg"), ("", "image.png"), ("...", "image.png"), ("a/b\\c.png", "c.png"),
        ("x.png#xywh=1,2,3,4", "x.png_xywh_1_2_3_4.png"), ("Ünïcödé 猫.heic", "Ünïcödé 猫.heic"),
        (".hidden", "hidden.png"), ("y" * 300 + ".png", "y" * 100 + ".png"), ("\udcff.png", "_.png"),
    ],
)  # fmt: skip
def test_a_name_of_any_kind_becomes_one_of_a_file(called: str, made: str) -> None:
    assert file_name(called, "PNG") == made
