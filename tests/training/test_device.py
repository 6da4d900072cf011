"""Where to compute."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.data import load_table
from newkinds.data.batch import Batch, Pixels
from newkinds.data.loader import TrainingBatches
from newkinds.errors import NewkindsError
from newkinds.runs.config import resolve
from newkinds.training.device import choose_device, choose_workers
from newkinds.training.loop import batches_of
from newkinds.training.model import build_model


def test_a_device_that_is_not_there_is_said() -> None:
    with pytest.raises(NewkindsError, match="'tpu' cannot be used"):
        choose_device("tpu")


def test_a_cpu_needs_its_cores_itself() -> None:
    assert choose_workers(-1, torch.device("cpu")) == 0
    assert choose_workers(3, torch.device("cpu")) == 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_freed_memory_is_used_again() -> None:
    """What the system hands out anew costs a page fault every 4 kB. In a process of its own, as a command has it: what
    other tests have mapped behind the heap would keep it from growing."""
    pytest.importorskip("resource")
    # a freed block may be a few bytes too small for the next one, until its neighbours are free too
    script = """
import resource, torch
from newkinds.process import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def faults_of_a_step():
    before = faults()
    torch.ones(2**25)  # 128 MB, freed at once
    return faults() - before

keep_freed_memory()
print(min(faults_of_a_step() for _ in range(20)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2**25 * 4 / 4096 / 10


def test_processes_of_a_machine_share_its_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert [choose_workers(workers, torch.device("cpu")) for workers in (0, 3, 8, 9)] == [0, 1, 2, 2]


class NotesCopies:
    """In the place of a tensor: notes how it is copied."""

    def __init__(self) -> None:
        self.waits: list[bool] = []

    def to(self, device: torch.device, non_blocking: bool = False) -> NotesCopies:
        self.waits.append(not non_blocking)
        return self


@pytest.mark.parametrize("name", ["cuda", "cpu"])
def test_a_gpu_has_pinned_views_and_is_not_waited_for(name: str) -> None:
    """As far as that can be seen without one."""
    device = torch.device(name)
    config = resolve({"data": {"name": "creatures", "categories": 4, "per_category": 8}})
    table = load_table(config.data)
    batches = batches_of(build_model(config, table.known, 4), table, config.train, device, None)
    assert isinstance(batches, TrainingBatches)
    assert batches._steps.pin_memory is (name == "cuda")
    values: Any = NotesCopies()
    Batch(Pixels(values), values, values, Pixels(values)).to(device)
    assert values.waits == [name == "cpu"] * 4


def test_deterministic_algorithms_hold_while_it_trains_and_no_longer(tmp_path: Path) -> None:
    held = []

    class Look(newkinds.Watcher):
        def on_step(self, *_: object) -> None:
            held.append(torch.are_deterministic_algorithms_enabled())

    for out, deterministic in (("a", False), ("b", True)):
        settings = [TINY_TRAINING, SMALL_HEAD, {"train": {"epochs": 1}}]
        newkinds.train("creatures", tmp_path / out, watchers=[Look()], deterministic=deterministic, settings=settings)
        assert not torch.are_deterministic_algorithms_enabled()
    assert held == [False, False, True, True]


def test_blocks_are_compiled_on_request_and_recipes_give_way_to_the_switch_of_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the compiler, which takes a minute."""
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: compiled.append(function) or function)
    settings = [TINY_TRAINING, SMALL_HEAD, {"train": {"epochs": 1, "compile": True}}]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("data: {name: creatures}\ntrain: {precision: float32}\n")
    done = newkinds.train(None, tmp_path / "run", recipe=recipe, precision="bfloat16", settings=settings)
    assert len(compiled) == 4  # the blocks of tiny
    assert done.config.train.precision == "bfloat16"
    assert done.model.precision.dtype is torch.bfloat16
