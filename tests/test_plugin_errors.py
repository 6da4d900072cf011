"""An error in a part from outside names its file and line, wherever it happens, and is not called a bug of newkinds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from newkinds.errors import NewkindsError, reason_of

Cli = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("registries_as_before")
METHOD = """
from newkinds.methods import METHODS

@METHODS.register("cms")
class Again(METHODS["simgcd"]): ...
"""
SMALL = ("--set", "train.batch_size=16")
TINY = ("--set", "data.categories=4", "--set", "data.per_category=8", *SMALL, "--epochs", 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero (FILE, line 2)"),
        ("x = 1\n\ndef\n", "(FILE, line 3)"),
        ("\nimport nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all' (FILE, line 2)"),
        ("def half(x):\n    return x[0]\nhalf([])\n", "IndexError: list index out of range (FILE, line 2, in half)"),
        (METHOD, "two methods are called 'cms' (FILE, "),
    ],
)
def test_mistakes_at_import_are_named_with_their_line(run_cli: Cli, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mistaken.py").write_text(text)
    status, _, err = run_cli("list", "--plugin", tmp_path / "mistaken.py")
    assert status == 1
    assert f"{tmp_path / 'mistaken.py'} cannot be loaded: " in err
    assert message.replace("FILE", str(tmp_path / "mistaken.py")) in err


@pytest.mark.parametrize(("change", "message"), [
    ("terms['loss'] = terms['loss'].expand(4)", "'loss' among what WHERE returns is of shape (4,)"),
    ("terms = terms['loss']", "what WHERE returns is no dictionary with a 'loss'"),
    ("terms['repel'] = 0 * terms['loss'].log().neg().sqrt(); terms['loss'] = terms['loss'] + terms['repel'] / 0",
     "(loss nan; not finite first: 'repel' in WHERE): lower the learning rate"),
])  # fmt: skip
def test_a_wrong_loss_is_that_of_its_class_and_file(run_cli: Cli, tmp_path: Path, change: str, message: str) -> None:
    (file := tmp_path / f"wrong_loss_{len(change)}.py").write_text(f"""
from newkinds.methods import METHODS
@METHODS.register("wrong")
class Wrong(METHODS["simgcd"]):
    def loss(self, step):
        terms = super().loss(step)
        {change}
        return terms
""")
    status, _, err = run_cli(
        "train", "creatures", "--method", "wrong", "--plugin", file, *TINY, "--out", tmp_path / "run"
    )
    assert status == 1
    assert message.replace("WHERE", f"Wrong.loss of {file}") in err


IN_USE = {
    "method": """
from newkinds.methods import METHODS
@METHODS.register("mistaken")
class Mistaken(METHODS["simgcd"]):
    def loss(self, step):
        return {"loss": step.encoded.feature @ step.encoded.feature}  # HERE
""",
    "organizer": """
from newkinds.organizers import ORGANIZERS, Organizer
@ORGANIZERS.register("mistaken")
class Mistaken(Organizer):
    def __init__(self, dim: int) -> None:
        super().__init__()
    def organize(self, tokens, details=False):
        return tokens.nothing  # HERE
""",
    "assigner": """
from newkinds.assigners import ASSIGNERS
@ASSIGNERS.register("mistaken")
class Mistaken(ASSIGNERS["sskmeans"]):
    def fit(self, embedding, labels):
        raise OSError(28, "No space left on device")  # HERE
""",
    "data": """
from newkinds.data import DATASETS
@DATASETS.register("mistaken")
def mistaken():
    return DATASETS["creatures"](categories=0)  # HERE
""",
}


@pytest.mark.parametrize("part", IN_USE)
def test_an_error_in_a_part_in_use_names_its_line_and_blames_nobody_else(
    run_cli: Cli, tmp_path: Path, part: str
) -> None:
    (file := tmp_path / f"wrong_{part}.py").write_text(IN_USE[part])
    named = ("mistaken", *SMALL) if part == "data" else ("creatures", f"--{part}", "mistaken", *TINY)
    status, _, err = run_cli("train", *named, "--epochs", 1, "--out", tmp_path / "run", "--plugin", file)
    line = 1 + next(number for number, text in enumerate(IN_USE[part].splitlines()) if "# HERE" in text)
    assert status == 1
    assert f"({file}, line {line}, in " in err
    assert "bug in newkinds" not in err


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ("{'total': step.encoded.feature.sum()}", "what Mistaken.loss of .*wrong_loss.py returns is no diction"),
        ("{'loss': step.encoded.feature.sum(dim=1)}", "'loss' among what Mistaken.loss .* returns is of shape .32,."),
        ("{'loss': step.encoded.feature.sum(), 'x': 3.0}", "'x' among what Mistaken.loss .* is a float, not a tensor"),
    ],
)
def test_what_a_plugin_returns_is_no_bug_of_newkinds_either(
    run_cli: Cli, tmp_path: Path, returns: str, message: str
) -> None:
    (file := tmp_path / "wrong_loss.py").write_text(re.sub("return .*", f"return {returns}", IN_USE["method"]))
    status, _, err = run_cli(
        "train", "creatures", "--method", "mistaken", *TINY, "--out", tmp_path / "r", "--plugin", file
    )
    assert status == 1
    assert re.search(message, err), err
    assert "bug in newkinds" not in err


IN_A_READER = """
from dataclasses import replace
import torch
from newkinds.data import DATASETS

class Opener:
    def __init__(self, open):
        self.open = open
    def __call__(self, row):
        if torch.utils.data.get_worker_info() is None:
            return self.open(row)
        raise KeyError("later")  # HERE

@DATASETS.register("mistaken")
def mistaken():
    table = DATASETS["creatures"](categories=4, per_category=4)
    return replace(table, open=Opener(table.open))
"""


def test_an_error_in_a_process_that_reads_images_names_its_line(run_cli: Cli, tmp_path: Path) -> None:
    (file := tmp_path / "wrong_reader.py").write_text(IN_A_READER)
    tiny = ("--backbone", "tiny", "--epochs", 1, *SMALL, "--set", "train.workers=1", "--plugin", file)
    _, _, err = run_cli("train", "mistaken", "--out", tmp_path / "run", *tiny)
    said = f"error: KeyError: 'later' ({file}, line 12, in __call__)"
    assert said in err
    assert "Traceback" not in err
    grid = ("--methods", "simgcd", "--organizers", "none", "--baselines", "none", "--data", "mistaken")
    status, _, err = run_cli("bench", "plugin", "--out", tmp_path / "bench", *grid, *tiny)
    assert (status, said.removeprefix("error: ") in err) == (1, True), err


def test_sentences_of_a_process_that_reads_images_stay_sentences() -> None:
    frames = 'File "/a/b.py", line 3, in f\n    raise NewkindsError("no")\n'
    text = f"Caught E in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  {frames}"
    sent = NewkindsError(f"{text}newkinds.errors.NewkindsError: there is no\nsuch file.\n")
    assert reason_of(sent) == "there is no such file."
    assert reason_of(RuntimeError(f"{text}ValueError: no\n")) == "ValueError: no"


OF_DATA = {
    "check": """
from newkinds.checks import CHECKS, Check
@CHECKS.register("mistaken")
class Mistaken(Check):
    "Nothing."
    def look(self, evidence):
        return evidence.nothing
""",
    "counter": """
from newkinds.count import COUNTERS

@COUNTERS.register("mistaken")
def mistaken(features, y):
    "Nothing."
    return features.nothing
""",
}


@pytest.mark.parametrize("part", OF_DATA)
def test_checks_and_counters_of_others_are_named_too(run_cli: Cli, tmp_path: Path, part: str) -> None:
    (file := tmp_path / f"wrong_{part}.py").write_text(OF_DATA[part])
    verb = ("check", "creatures") if part == "check" else ("count", "creatures", "--by", "mistaken")
    status, _, err = run_cli(*verb, *TINY[:4], "--plugin", file)
    assert (status, f"({file}, line 7, in " in err) == (1, True), err
    assert "bug in newkinds" not in err


def test_a_part_of_another_package_is_not_blamed_on_newkinds_either(package: Callable[..., None], run_cli: Cli) -> None:
    module = OF_DATA["check"].replace("evidence.nothing", "None").replace('@CHECKS.register("mistaken")', "")
    package("newkinds_wrong", module, checks={"mistaken": "newkinds_wrong:Mistaken"})
    status, _, err = run_cli("check", "creatures", *TINY[:4])
    assert status == 1
    assert "What a part of " in err
    assert "newkinds_wrong" in err
    assert "bug in newkinds" not in err
