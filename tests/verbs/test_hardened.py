"""What people type by mistake or in malice gets a sentence, not "this may be a bug"."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from conftest import save_image
from newkinds import NewkindsError
from newkinds.cli import main
from newkinds.data.folder import files_of, read_csv
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
    assert main(["train", "creatures", *words]) == 1
    said = capsys.readouterr().err
    assert "error: " in said
    assert "bug" not in said
    assert len(said) < 1500


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


@pytest.mark.parametrize("again", [1, 3])
def test_ctrl_c_is_one_line_however_often(tmp_path: Path, again: int) -> None:
    words = ["train", "creatures", "--out", str(tmp_path / "run"), "--epochs", "500"]
    command = [sys.executable, "-m", "newkinds", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "config.yaml").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    for _ in range(again):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    said = process.communicate(timeout=60)[1]
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
