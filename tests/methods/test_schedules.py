import json
from pathlib import Path

import pytest

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.methods.schedules import cosine_lr, linear_then_constant
from newkinds.runs.run import Run

NUMBERS = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((NUMBERS / "simgcd.json").read_text())


@pytest.mark.parametrize(
    ("case", "lr", "min_ratio"), [("simgcd", 0.1, 1e-3), ("cms_coarse", 0.01, 1e-3), ("cms_fine", 0.05, 5e-3)]
)
def test_cosine_lr_is_the_published_one(case, lr, min_ratio):
    for epoch, expected in EXPECTED["lr"][case].items():
        got = cosine_lr(int(epoch.removeprefix("after_")), epochs=200, lr=lr, min_ratio=min_ratio)
        assert got == pytest.approx(expected, rel=1e-9)


def test_the_cosine_of_amend_begins_again_every_30_epochs():
    for epoch, expected in json.loads((NUMBERS / "amend.json").read_text())["lr"].items():
        assert cosine_lr(int(epoch), epochs=200, lr=0.1, cycle=30) == pytest.approx(expected, rel=1e-9)


def test_a_training_follows_the_cycle(tmp_path):
    three = {"train": {"epochs": 3, "lr": 0.1, "lr_cycle": 2}}
    newkinds.train("creatures", tmp_path / "run", settings=[TINY_TRAINING, SMALL_HEAD, three])
    rates = [row["lr"] for row in Run(tmp_path / "run").metrics()]
    assert rates == pytest.approx([0.1, 0.05005, 0.1])


def test_teacher_temperature_is_the_published_one():
    for epoch, expected in EXPECTED["distill"]["schedule"].items():
        assert linear_then_constant(int(epoch), 0.07, 0.04, warmup=30) == pytest.approx(expected, abs=1e-12)


def test_short_warmups():
    assert [linear_then_constant(e, 3.0, 1.0, warmup=0) for e in range(3)] == [1, 1, 1]
    assert [linear_then_constant(e, 3.0, 1.0, warmup=1) for e in range(3)] == [3, 1, 1]
    assert [linear_then_constant(e, 3.0, 1.0, warmup=2) for e in range(3)] == [3, 1, 1]
    assert [linear_then_constant(e, 3.0, 1.0, warmup=3) for e in range(4)] == [3, 2, 1, 1]
