"""A damaged file of a run is refused by its name; a kill between any two steps of writing refuses nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

import newkinds
from conftest import Killed, save_image
from newkinds.errors import NewkindsError
from newkinds.files import checksum
from newkinds.runs.run import CHECKSUMS, Run

READERS: dict[str, Callable[[Path], Any]] = {
    "model.safetensors": newkinds.load,
    "train_state.pt": lambda folder: Run(folder).load_state(),
    "features.safetensors": newkinds.count_categories,
    "assignments.csv": newkinds.evaluate,
    "config.yaml": newkinds.load,
    "metrics.jsonl": lambda folder: Run(folder).metrics(),
    "protocol.json": newkinds.evaluate,
}


@pytest.fixture
def copy(trained_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_run, tmp_path / "copy"))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("damage", ["first bit", "middle bit", "zeroed tail"])
def test_damage_is_refused_and_the_file_is_named(copy: Path, name: str, damage: str) -> None:
    content = bytearray((copy / name).read_bytes())
    if damage == "zeroed tail":
        content[-len(content) // 4 :] = bytes(len(content[-len(content) // 4 :]))
    else:
        content[0 if damage == "first bit" else len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(NewkindsError, match=rf"{name} is damaged or was changed by hand"):
        READERS[name](copy)


def test_no_file_of_a_run_is_without_a_checksum(copy: Path) -> None:
    newkinds.evaluate(copy)
    newkinds.count_categories(copy)
    there = {file.name for file in copy.iterdir() if not file.name.startswith(".")}
    listed = {line.partition("  ")[2] for line in (copy / CHECKSUMS).read_text().split("\n")}
    assert there - listed == {CHECKSUMS}
    assert there <= {file.name for file in Run(copy).own_files()}


def test_a_change_that_is_meant_can_be_kept(copy: Path) -> None:
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("workers: -1", "workers: 0"))
    with pytest.raises(NewkindsError, match=r"delete the lines about config.yaml in checksums.txt"):
        newkinds.load(copy)
    lines = (copy / CHECKSUMS).read_text().split("\n")
    (copy / CHECKSUMS).write_text("\n".join(line for line in lines if not line.endswith("  config.yaml")))
    assert newkinds.load(copy).config.train.workers == 0


def test_a_run_without_checksums_opens(copy: Path, tmp_path: Path) -> None:
    (copy / CHECKSUMS).unlink()
    assert newkinds.predict(copy, save_image(tmp_path / "a.png"))
    assert newkinds.evaluate(copy)["evaluated"] == 24
    assert newkinds.count_categories(copy).known == 2
    assert Run(copy).load_state() is not None


def test_without_checksums_what_cannot_be_right_is_refused_nevertheless(copy: Path) -> None:
    (copy / CHECKSUMS).unlink()
    file = copy / "assignments.csv"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    with pytest.raises(NewkindsError, match=r"assignments\.csv is damaged"):
        newkinds.evaluate(copy)
    file.write_bytes(content)
    features = load_file(copy / "features.safetensors")["features"]
    features[3, 0] = float("nan")
    (copy / "features.safetensors").write_bytes(save({"features": features}))
    with pytest.raises(NewkindsError, match="row 3"):
        newkinds.count_categories(copy)
    model = newkinds.load(copy).model
    name, parameter = list(model.named_parameters())[-1]
    parameter.data.view(-1)[0] = float("nan")
    (copy / "model.safetensors").write_bytes(model.as_safetensors())
    with pytest.raises(NewkindsError, match=rf"the tensor {name} in .*model\.safetensors holds values that are NaN"):
        newkinds.load(copy)


def test_a_feature_that_is_no_number_gets_no_category(trained_run: Path) -> None:
    model = newkinds.load(trained_run).model
    features = torch.zeros(3, model.encoder.dim)
    features[1, 0] = float("nan")
    with pytest.raises(NewkindsError, match="features that are NaN or infinite"):
        model.assign(features)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_holds_numbers_only(tmp_path: Path, value: float) -> None:
    run = Run(tmp_path)
    run.write_json("evaluation.json", {"acc": 0.5})
    with pytest.raises(NewkindsError, match=r"evaluation\.json would hold NaN"):
        run.write_json("evaluation.json", {"acc": value})
    with pytest.raises(NewkindsError, match=r"metrics\.jsonl would hold NaN"):
        run.write_metrics([{"epoch": 0, "loss": value}])
    assert json.loads((tmp_path / "evaluation.json").read_text()) == {"acc": 0.5}


def write_some(run: Run, done: list[int]) -> None:
    """As two epochs and two discoveries do it; `done` counts the writes that came to their end."""
    for epoch in range(2):
        for write in (
            lambda epoch: run.write("config.yaml", "same every time"),
            lambda epoch: run.write_metrics([{"epoch": number} for number in range(epoch + 1)]),
            lambda epoch: run.save_state({"epochs_done": epoch + 1}),
            lambda epoch: run.write_table("assignments.csv", ("path",), [(f"{epoch}.png",)]),
        ):
            write(epoch)
            done.append(epoch)


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_step_of_writing_every_file_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # nobody cuts the power here
    original = getattr(os, step)
    kills = 0
    for number in range(200):
        run, calls = Run(tmp_path / str(number)), 0
        run.folder.mkdir()
        write_some(run, []) if number % 2 else None  # there may be earlier files of the same names

        def die(*arguments: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == number // 2 + 1 and not after:  # noqa: B023
                raise Killed
            original(*arguments)
            if calls == number // 2 + 1:  # noqa: B023
                raise Killed

        done: list[int] = []
        with monkeypatch.context() as patched:
            patched.setattr(os, step, die)
            try:
                write_some(run, done)
            except Killed:
                kills += 1
            else:
                break
        for name in ("config.yaml", "metrics.jsonl", "train_state.pt", "assignments.csv"):
            run.verified(name)
        state, rows = run.load_state(), run.metrics()
        if number % 2 == 0:
            assert (0 if state is None else state["epochs_done"]) >= len(done) // 4
            assert len(rows) >= (0 if state is None else state["epochs_done"])
        write_some(run, [])
        assert [row["path"] for row in run.read_table("assignments.csv")] == ["1.png"]
    assert kills >= 8


def test_half_a_line_of_checksums_spoils_no_other(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write_json("a.json", 1)
    for torn in ("\n", "\n0123", "\n0123456789abcdef  a.j"):
        with open(tmp_path / CHECKSUMS, "a") as file:
            file.write(torn)
        assert run.read_json("a.json") == 1
        run.write_json("b.json", torn)
        assert run.read_json("b.json") == torn


def test_a_folder_that_was_only_begun_is_a_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(Killed):
        Run(tmp_path).write("config.yaml", "k: 3")
    assert [file.name for file in tmp_path.iterdir()] == [CHECKSUMS]
    Run(tmp_path).refuse_other_contents()


def test_the_header_of_the_model_is_verified_too(copy: Path) -> None:
    file = copy / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content.replace(b'\\"k\\": 4', b'\\"k\\": 5', 1))
    assert file.read_bytes() != content
    with pytest.raises(NewkindsError, match=r"model\.safetensors is damaged or was changed"):
        newkinds.evaluate(copy)


def test_lost_checksums_are_warned_of(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (copy / CHECKSUMS).write_bytes(bytes(200))
    newkinds.load(copy)
    assert "cannot be verified" in capfd.readouterr().err


def test_a_file_is_hashed_once_until_it_changes(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, hashed = Run(copy), []

    def counted(content: Path | bytes) -> str:
        hashed.append(content)
        return checksum(content)

    monkeypatch.setattr("newkinds.runs.directory.checksum", counted)
    assert run.about_model() == run.about_model()
    assert hashed == [run.model_file]
    content = bytearray(run.model_file.read_bytes())
    content[-1] ^= 1
    run.model_file.write_bytes(content)
    with pytest.raises(NewkindsError, match=r"model\.safetensors is damaged"):
        run.about_model()
