"""`newkinds plugin check`: what is wrong with a part is found, and named with its file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from newkinds.contracts import CONTRACTS, answers_text
from newkinds.contracts.plugin import check_plugin

Cli = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("registries_as_before")

METHOD = """
import torch
from newkinds.methods import METHODS
SimGCD = METHODS["simgcd"]

@METHODS.register("wrong")
class Wrong(SimGCD):
    "A method."
    def __init__(self, config, dim, known, categories):
        super().__init__(config, dim, known, categories)
        EXTRA
    def loss(self, step):  # BLAMED
        terms = super().loss(step)
        CHANGE
        return terms
"""
ORGANIZER = """
import torch
from newkinds import Encoded
from newkinds.organizers import ORGANIZERS, Organizer

@ORGANIZERS.register("wrong")
class Wrong(Organizer):
    "An organizer."
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(dim))
    def organize(self, tokens, details=False):  # BLAMED
        feature = FEATURE
        return Encoded(feature, tokens=tokens.patches if details else None, grid=tokens.grid if details else None)
"""
ASSIGNER = """
import numpy as np
import torch
from newkinds.assigners import ASSIGNERS
@ASSIGNERS.register("wrong")
class Wrong(ASSIGNERS["kmeans"]):
    "An assigner."
    def fit(self, embedding, labels):  # BLAMED
        super().fit(embedding + torch.from_numpy(np.random.rand(1, embedding.shape[1])).float(), labels)
"""
COUNTER = """
from newkinds.count import COUNTERS, Count
@COUNTERS.register("wrong")
def wrong(features, y):  # BLAMED
    "Seven."
    return Count(7, [(3, 1.0)], "wrong", 4)
"""
DATASET = """
from newkinds.data import DATASETS
from dataclasses import replace
@DATASETS.register("wrong")
def wrong(categories: int = 4):  # BLAMED
    "Creatures."
    table = DATASETS["creatures"](categories=categories, per_category=4)
    return replace(table, open=lambda row: table.open(row).convert("L"))
"""
CHECK = """
import numpy as np
from newkinds.checks import CHECKS, Check, Verdict
@CHECKS.register("wrong")
class Wrong(Check):
    "Everything."
    def look(self, evidence):  # BLAMED
        return Verdict(np.zeros(len(evidence.table)), np.ones(len(evidence.table), bool))
"""
EXPORT = """
from newkinds.discovery.export import EXPORTS
@EXPORTS.register("wrong")
def wrong(discovery, target):  # BLAMED
    "Text, and a file beside it."
    target.write_text("categories")
    target.with_name("beside.txt").write_text("more")
    return "2 files"
"""
TUNING = """
import torch
from newkinds.encoders.tunings import TUNINGS, Tuning
@TUNINGS.register("wrong")
class Wrong(Tuning):
    "Adds to what enters a block, and says that it begins later than it does."
    def __init__(self, anatomy, /):  # BLAMED
        super().__init__(anatomy)
        self.shift = torch.nn.Parameter(torch.zeros(anatomy.dim))
        self.first = 1
    def images(self, images):
        return images + self.shift.mean()
"""
REMEMBERS = METHOD.replace("EXTRA", "self.steps = 0").replace(
    "CHANGE", 'self.steps += 1; terms["loss"] = terms["loss"] * (1 + self.steps / 10)'
)
CASES = {
    "unused": (METHOD.replace("EXTRA", "self.unused = torch.nn.Linear(dim, 2)").replace("CHANGE", "pass"),
               "gradient reaches all that trains: no gradient reaches method.unused.weight, method.unused.bias"),
    "no loss": (METHOD.replace("EXTRA", "pass").replace("CHANGE", "terms.pop('loss')"),
                "returns is no dictionary with a 'loss' to minimise"),
    "forgets": (REMEMBERS, "ends with the same bits: the resumed run has other weights: what the loss remembers must"),
    "error": (METHOD.replace("EXTRA", "pass").replace("CHANGE", "terms['loss'] /= step.batch.labels.sum().clamp(0)"),
              "and its gradient reaches all that trains: the loss is not finite."),
    "mean of the batch": (ORGANIZER.replace("FEATURE", "self.gain * (tokens.cls - tokens.cls.mean(dim=0))"),
                          "if others are in the batch"),
    "no gradient": (ORGANIZER.replace("FEATURE", "tokens.cls + self.gain.detach()"), "no gradient reaches gain"),
    "shape": (ORGANIZER.replace("FEATURE", "(self.gain * tokens.cls)[:, :5]"), "it makes features (3, 5)"),
    "numpy's numbers": (ASSIGNER, "random numbers come from torch's generator"),
    "counter": (COUNTER, "the answer 7 is not on its curve"),
    "data set": (DATASET, "`open` and `test` are functions of the module"),
    "check": (CHECK, "images are flagged, and no sentence says why"),
    "export": (EXPORT, "beside its target it leaves ['beside.txt']"),
    "no slash": (TUNING.replace(", /", ""), "the setting 'anatomy' has no type: write anatomy: float = …, or put a /"),
    "tuning": (TUNING, "from the cache the tokens are others than without: `first` is 1, lower it"),
}  # fmt: skip


def line_of(text: str, mark: str) -> int:
    return 1 + next(number for number, line in enumerate(text.splitlines()) if mark in line)


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_found_and_named_with_its_line(case: str, tmp_path: Path) -> None:
    text, message = CASES[case]
    (file := tmp_path / f"checked_{case.replace(' ', '_')}.py".replace("'", "")).write_text(text)
    broken = [answer for answer in check_plugin(file) if answer.outcome == "broken"]
    said = answers_text(broken)
    assert message in said
    [found] = [answer for answer in broken if message in f"{answer.contract.says}: {answer.reason}"][:1]
    assert f"({file}, line {line_of(text, '# BLAMED')}, in " in found.reason
    assert "bug in newkinds" not in said


def test_an_error_in_the_part_names_the_line_that_raised_it(run_cli: Cli, tmp_path: Path) -> None:
    text = METHOD.replace("EXTRA", "pass").replace("CHANGE", "terms['x'] = step.nothing  # HERE")
    (file := tmp_path / "checked_error.py").write_text(text)
    status, out, err = run_cli("plugin", "check", file, "--json")
    answers = json.loads(out)
    assert status == 1
    assert {answer["contract"] for answer in answers} == {contract.says for contract in CONTRACTS["method"]}
    reasons = [answer["reason"] for answer in answers if answer["outcome"] == "broken"]
    assert len(reasons) > 5
    assert all(f"({file}, line {line_of(text, '# HERE')}, in " in reason for reason in reasons)
    assert "Traceback" not in err
    status, out, _ = run_cli("plugin", "check", file)
    assert status == 1
    for reason in set(reasons):
        assert out.count(reason) == 1, "each is said once"
    most = max(reasons.count(reason) for reason in reasons)
    assert f"\n        {most - 1} others fail for the same reason\n" in out
    assert f"{len(reasons)} of {sum(answer['outcome'] != 'left out' for answer in answers)} contracts broken" in out


def test_a_plugin_that_holds_all_ends_with_zero_and_says_so(run_cli: Cli, tmp_path: Path) -> None:
    (file := tmp_path / "checked_right.py").write_text(ORGANIZER.replace("FEATURE", "self.gain * tokens.cls"))
    status, out, err = run_cli("plugin", "check", file)
    assert (status, err) == (0, ""), out
    asked = len(CONTRACTS["organizer"]) - 1  # its slots are not fixed
    assert out.rstrip().endswith(f"all {asked} contracts held")
    assert out.count("\n  ok    ") == asked


def test_files_that_cannot_be_checked(run_cli: Cli, tmp_path: Path) -> None:
    (nothing := tmp_path / "checked_nothing.py").write_text("x = 1\n")
    status, _, err = run_cli("plugin", "check", nothing)
    assert (status, "registers nothing: put @METHODS.register" in err) == (1, True)
    (mistaken := tmp_path / "checked_mistaken.py").write_text("x = 1 / 0\n")
    status, _, err = run_cli("plugin", "check", mistaken)
    assert (status, f"ZeroDivisionError: division by zero ({mistaken}, line 1)" in err) == (1, True)


def test_every_kind_has_contracts_of_its_own() -> None:
    for kind, contracts in CONTRACTS.items():
        assert len({contract.says for contract in contracts}) == len(contracts) > 1, kind
        assert all(len(contract.says) < 110 for contract in contracts)
