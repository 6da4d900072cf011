"""What people type by mistake or in malice gets a sentence, not "this may be a bug"."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

from conftest import save_image
from newkinds import NewkindsError
from newkinds.cli import main
from newkinds.data.csv_list import read_csv
from newkinds.data.folder import files_of
from newkinds.data.images import BadImage, open_image
from newkinds.discovery.categories import Discovery
from newkinds.discovery.export.image_export import record
from newkinds.discovery.kinds import Category, Member
from newkinds.encoders.weights import read_tensors
from newkinds.files import csv_text
from newkinds.runs.directory import RunDirectory
from newkinds.runs.run import Run
from newkinds.settings import parse_assignment
from newkinds.training.device import choose_device


@pytest.mark.parametrize(
    "words",
    [
        ["--out", "x" * 300],
        ["--out", "/".join(["deep"] * 2000)],
        ["--out", "a\0b"],
        ["--out", "~nosuchuser/run", "--weights", "~nosuchuser/w.pth"],
        ["--set", "train.epochs=2020-13-45"],
        ["--set", "train.epochs=1:30"],
        ["--set", f"train.epochs={'9' * 5000}"],
        ["--set", f"train.lr={'9' * 400}"],
        ["--set", f"k={'9' * 400}"],
        ["--set", "train.workers=1000"],
        ["--set", "[" * 5000],
        ["--device", "meta"],
        ["--set", "train.batch_size=" + "[" * 3000],
    ],
)
def test_a_sentence_for_each(words: list[str], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    if "--out" not in words:
        words = ["--out", "run", *words]
    few = [
        "--set",
        "data.categories=4",
        "--set",
        "data.per_category=4",
    ]  # some are found when the first file is written
    assert main(["train", "creatures", *few, *words]) == 1
    said = capsys.readouterr().err
    assert "error: " in said
    assert "bug" not in said
    assert len(said) < 1500


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory")
def test_too_little_memory_to_load_the_libraries(tmp_path: Path) -> None:
    """The loader of libraries raises an ImportError then."""
    limited = "import resource, runpy; resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20)); "
    run = "runpy.run_module('newkinds', run_name='__main__')"
    words = ["predict", str(tmp_path), "a.png"]
    done = subprocess.run([sys.executable, "-c", limited + run, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "there is not enough memory to load the libraries" in done.stderr
    assert "bug" not in done.stderr


def test_no_memory_for_the_sentence_either(tmp_path: Path, monkeypatch, capfd) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("newkinds.cli.show", none_left)
    assert main(["name", str(tmp_path)]) == 1
    assert capfd.readouterr().err == "error: there is not enough memory.\n"


def test_settings_that_no_memory_holds(tmp_path: Path, capsys) -> None:
    huge = ["--set", "organizer.primitives=2000000000"]
    assert main(["train", "creatures", "--out", str(tmp_path / "run"), "--organizer", "cpf", *huge]) == 1
    said = capsys.readouterr().err
    assert "not enough memory" in said
    assert "bug" not in said


def test_yaml_means_what_it_says() -> None:
    assert parse_assignment("train.epochs=1:30") == {"train": {"epochs": "1:30"}}
    assert parse_assignment("train.lr=1:30.5") == {"train": {"lr": "1:30.5"}}
    assert parse_assignment("data.path=2020-12-05") == {"data": {"path": "2020-12-05"}}
    assert parse_assignment("train.epochs=12") == {"train": {"epochs": 12}}
    assert parse_assignment("train.lr=0.5") == {"train": {"lr": 0.5}}


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"{", b"[1]\n", b"3\n", b"\xef\xbb\xbf{}"])
def test_a_curve_that_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(content)
    with pytest.raises(NewkindsError, match="line 1 is damaged"):
        Run(tmp_path).metrics()


@pytest.mark.parametrize("content", ["{}", "[]", "3", '{"images": 3}'])
def test_a_protocol_that_is_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "protocol.json").write_text(content)
    with pytest.raises(NewkindsError, match=r"protocol.json is damaged"):
        Run(tmp_path).protocol()


def test_weights_that_are_none(tmp_path: Path) -> None:
    itself: dict[str, object] = {}
    itself["again"] = itself
    odd = {"sparse": torch.eye(3).to_sparse(), "meta": torch.empty(3, device="meta")}
    torch.save(itself, tmp_path / "itself.pth")
    with pytest.raises(NewkindsError, match="holds itself"):
        read_tensors(tmp_path / "itself.pth")
    for name, tensor in odd.items():
        torch.save({"weight": tensor}, tmp_path / f"{name}.pth")
        with pytest.raises(NewkindsError, match=r"weight|damaged"):
            read_tensors(tmp_path / f"{name}.pth")


def test_the_device_that_holds_nothing() -> None:
    with pytest.raises(NewkindsError, match="meta"):
        choose_device("meta")


def test_no_cell_is_a_formula() -> None:
    rows = csv_text(("path", "n"), [("=cmd()", -1), ("+1", 2.0), ("-x.jpg", 0), ("@a", 1), ("a=b", 1)]).splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == ["\\x3dcmd()", "\\x2b1", "\\x2dx.jpg", "\\x40a", "a=b"]


def test_one_image_named_in_two_ways_is_one(tmp_path: Path, monkeypatch) -> None:
    image = save_image(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    assert files_of(["a.png", image, "./a.png", tmp_path], []) == [Path("a.png")]
    (tmp_path / "list.csv").write_text(f"path,label\na.png,x\n{image},\n")
    table = read_csv(tmp_path / "list.csv")
    assert table.paths == ["a.png"]
    assert "repeats line 2" in table.skipped[0].reason


def test_a_million_columns_are_mentioned_in_a_line(tmp_path: Path, capsys) -> None:
    save_image(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("path,label," + ",".join(f"c{i}" for i in range(100_000)) + "\na.png,x\n")
    read_csv(tmp_path / "list.csv")
    assert len(capsys.readouterr().err) < 500


@pytest.mark.parametrize("again", [pytest.param(1, marks=pytest.mark.long), 3])
def test_ctrl_c_is_one_line_however_often(tmp_path: Path, again: int) -> None:
    few = ["--set", "data.categories=4", "--set", "data.per_category=4"]
    words = ["train", "creatures", "--out", str(tmp_path / "run"), "--epochs", "500", *few]
    command = [sys.executable, "-m", "newkinds", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not (tmp_path / "run" / "config.yaml").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    for _ in range(again):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    try:
        said = process.communicate(timeout=300)[1]
    finally:
        process.kill()
    assert "Traceback" not in said
    assert "interrupted; to resume, rerun the same command" in said
    assert process.returncode == 130


def test_a_run_that_may_only_be_read_is_judged(trained_run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained_run, run)

    def refuse(self: RunDirectory, name: str, content: object) -> None:
        raise NewkindsError(f"cannot write {self.path(name)}: Read-only file system.")

    monkeypatch.setattr(RunDirectory, "write", refuse)
    assert main(["eval", str(run)]) == 0
    assert main(["count", str(run), "--by", "ward"]) == 0
    said = capsys.readouterr()
    assert said.err.count("the result is not kept") == 2
    assert "ACC (v2, one match)" in said.out
    assert "categories" in said.out


def test_what_was_skipped_last_time_is_not_said_again(trained_run: Path, tmp_path: Path) -> None:
    good, bad = save_image(tmp_path / "good.png"), tmp_path / "bad.png"
    bad.write_text("no image")
    table = tmp_path / "out.csv"
    assert main(["predict", str(trained_run), str(good), str(bad), "--out", str(table)]) == 0
    assert (tmp_path / "out.skipped.csv").is_file()
    assert main(["predict", str(trained_run), str(good), "--out", str(table)]) == 0
    assert not (tmp_path / "out.skipped.csv").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs names that are not UTF-8")
def test_a_byte_and_its_spelling_are_two_files(tmp_path: Path) -> None:
    byte, letters = os.fsdecode(b"\xff.png"), r"\xff.png"
    for name in (byte, letters):
        os.rename(save_image(tmp_path / "new.png"), tmp_path / name)
    ours = csv_text(("path", "label"), [(byte, "x"), (letters, "")])
    (tmp_path / "ours.csv").write_text(ours)
    assert read_csv(tmp_path / "ours.csv").paths == [byte, letters]
    (tmp_path / "plain.csv").write_text(f"path,label\n{letters},x\n")
    assert read_csv(tmp_path / "plain.csv").paths == [letters]
    (tmp_path / byte).unlink()
    assert read_csv(tmp_path / "ours.csv").paths == [byte, letters]  # the missing one is named, not the other taken
    members = [Member(path, None, "new-00", True, 1.0, 0.0, 0) for path in (byte, letters)]
    paths = [record(member)["path"] for member in members]
    assert paths == [letters, r"\\xff.png"]
    found = Discovery(tmp_path, [Category(0, "new-00", True, 2, 1.0, [])], members, [])
    assert [found.path_of(path) for path in (byte, letters, r"\\xff.png")] == [byte, letters, letters]
    alone = Discovery(tmp_path, [Category(0, "new-00", True, 1, 1.0, [])], members[:1], [])
    assert alone.path_of(letters) == byte  # as assignments.csv spells it


def test_damaged_tiffs_are_reported_by_us_alone(tmp_path: Path, capfd) -> None:
    save_image(tmp_path / "good.png")
    Image.open(tmp_path / "good.png").save(tmp_path / "a.tif", compression="tiff_lzw")
    content, refused = (tmp_path / "a.tif").read_bytes(), 0
    for start in range(10, 400, 10):  # the pixels come first, then the header
        (tmp_path / "a.tif").write_bytes(content[:start] + bytes(range(200, 240)) + content[start + 40 :])
        try:
            open_image(tmp_path / "a.tif")
        except BadImage:
            refused += 1
    assert refused > 5
    assert capfd.readouterr().err == ""  # libtiff: "Using code not yet in table", for each


@pytest.mark.parametrize("name", ["assignments.csv", "skipped.csv"])
def test_a_table_that_was_saved_otherwise(name: str, trained_run: Path, tmp_path: Path, run_cli) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained_run, run)
    lines = (run / "checksums.txt").read_text().split("\n")  # as the message says, to keep a change of one's own
    (run / "checksums.txt").write_text("\n".join(line for line in lines if not line.endswith(f"  {name}")))
    content = (run / name).read_bytes()
    (run / name).write_bytes(b"\xef\xbb\xbf" + content)
    assert len(Discovery.read(run).members) == 32
    for header in (b"other,names\n", b"\xff\xfe\n", b"", b"path\n", b"path,path\n"):
        (run / name).write_bytes(header + content.partition(b"\n")[2])
        for words in (["name", run], ["report", run], ["eval", run]):
            status, _, said = run_cli(*words)
            assert "bug" not in said
            assert "Traceback" not in said
            assert status == 0 or ("error: " in said and name in said)


def test_the_device_that_holds_nothing_in_a_recipe(tmp_path: Path, run_cli) -> None:
    (tmp_path / "r.yaml").write_text("train: {device: meta, epochs: 1}\n")
    status, _, said = run_cli("train", "creatures", "--recipe", tmp_path / "r.yaml", "--out", tmp_path / "run")
    assert status == 1
    assert "the device 'meta' cannot be used" in said
    assert "bug" not in said


PRESSED = """
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000): pass
            except KeyboardInterrupt:
                raise {error}

sys.meta_path.insert(0, Finder())
sys.argv = ["newkinds", "train", "creatures", "--out", {out!r}]
runpy.run_module("newkinds", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "error"),
    [("newkinds.cli.options", ""), ("torch", ""), ("torch", "AttributeError('half imported') from None")],
)
def test_ctrl_c_while_it_starts(module: str, error: str, tmp_path: Path) -> None:
    program = PRESSED.format(module=module, error=error, out=str(tmp_path / "run"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stderr.startswith("interrupted")
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode in (130, -signal.SIGINT)
