"""Each file of a run is read back as it was written; what is damaged or crafted is named."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from newkinds.errors import NewkindsError
from newkinds.runs.changes import CategoryChange, CategoryCounts, ImageChange, LabelCounts, RefinedRecord
from newkinds.runs.directory import RunDirectory
from newkinds.runs.records import (
    CandidateScore,
    Evaluation,
    EvaluationState,
    Finding,
    Findings,
    HeldOutEvaluation,
    OutsidePart,
    PlanRecord,
    Protocol,
    Record,
    Reliability,
    ReliabilityBin,
    Stage,
    Timing,
)
from newkinds.runs.typed_json import Unfit, value_of

SCORES = [0.25, 0.5, 0.625]
JUDGED = CandidateScore("adapter", "adapter", {"train": {"lr": 0.1}}, True, SCORES, 0.5, None, 3.5, "judged")
PLAN = PlanRecord(
    "adapter", "it is better", "the best wins", 3, 600.0, 20.5, "0a1b", {"k": "7"}, True,
    [CandidateScore("frozen", state="not tried: why"), replace(JUDGED, name="worse", scores=[0.2]), JUDGED],
    [Stage("embed", 1.5, 2.5)],
)  # fmt: skip
FIGURES = {"acc_all": 0.5, "acc_old": None, "acc_new": 0.5, "nmi": 0.25, "ari": 0.125, "other": 1.0}
EVALUATION = Evaluation(
    7, FIGURES, FIGURES, None, HeldOutEvaluation(3, FIGURES, "abc", "def"), EvaluationState("0a", 2), {"seed": "0"}
)
PROTOCOL = Protocol(
    30, 10, 2, None, "split", None, "list", {"backbone": 3}, ["head, lr 0.1"], "tiny", None,
    {"method": OutsidePart("mine", "mine.py", "0a1b")}, "newkinds 0.2.0", "CPU", "2026-11-18",
)  # fmt: skip
REFINED = RefinedRecord(
    "runs/photos", 3, LabelCounts(4, 9), {"moved": 2}, CategoryCounts(5, 4, 2, 2), {"0": 0, "7": None},
    [CategoryChange(0, None, "cat", False, 4, 8, 9, 7)], 1, [ImageChange("a.png", "new-1", "cat", 0.75)],
    ["70.0 % of labels"], "features of the run", 12.5, "2026-11-18", True,
)  # fmt: skip
RELIABILITY = Reliability([ReliabilityBin(0.8, 0.9, 12, 0.85, 0.75)], 12, "by temperature", 0.1)


@pytest.mark.parametrize(
    "record", [PLAN, RELIABILITY, EVALUATION, PROTOCOL, REFINED, Timing(1.5, 3)], ids=lambda one: one.FILE
)
def test_what_is_written_is_read_back(record: Record, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert type(record).find(run) is None
    record.write(run)
    assert type(record).read(run) == record == type(record).find(run)


def test_findings_are_read_back(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert Findings.read(run) == []
    written = [Finding("", "imbalance", None, "unequal"), Finding("two\nlines, and a ,", "copies", 1.5, "twice")]
    Findings.write(written, run)
    assert Findings.read(run) == written
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "check.csv").write_text("path,check,score,sentence\na,b,much,c\n")
    with pytest.raises(NewkindsError, match=r"check\.csv is damaged \(a score in it is not a number\): delete it"):
        Findings.read(RunDirectory(tmp_path / "other"))


def test_score_and_error_of_a_candidate_are_those_of_its_splits(tmp_path: Path) -> None:
    assert JUDGED.score == pytest.approx(statistics.mean(SCORES))
    assert JUDGED.error == pytest.approx(statistics.stdev(SCORES) / 3**0.5)
    assert (CandidateScore("x").score, CandidateScore("x").error) == (None, None)
    assert replace(JUDGED, scores=[0.5]).error is None
    PLAN.write(RunDirectory(tmp_path))
    written = json.loads((tmp_path / "plan.json").read_text())["candidates"][2]
    assert (written["score"], written["error"]) == (JUDGED.score, JUDGED.error), "for whoever reads the file"
    assert [candidate.name for candidate in PLAN.ranked] == ["adapter", "worse", "frozen"]


@dataclass(frozen=True)
class Part:
    name: str
    size: int = 3


@pytest.mark.parametrize(
    ("content", "wanted", "said"),
    [
        (True, int, "here is not a whole number"),
        (1, bool, "here is not true or false"),
        ("1", float, "here is not a number"),
        (float("nan"), float, "here is not a number"),
        (10**400, float, "here is not a number"),
        (None, str, "here is not text"),
        ([1, None], list[int], r"here\[1\] is not a whole number"),
        ({"a": "b"}, dict[str, int], r"here\.a is not a whole number"),
        ([1], tuple[int, int], "here is not a list"),
        ({"size": 2}, Part, r"it does not say 'here\.name'"),
        ({"name": "a", "size": "b"}, Part, r"here\.size is not a whole number"),
        ([], Part, "here is not an object"),
        ([{"name": 1}], list[Part] | None, r"here\[0\]\.name is not text"),
    ],
)
def test_what_does_not_fit_its_type_is_named(content: Any, wanted: Any, said: str) -> None:
    with pytest.raises(Unfit, match=said):
        value_of(content, wanted, "here")


def test_what_fits_is_taken_and_what_is_unknown_ignored() -> None:
    assert value_of({"name": "a", "later": [1]}, Part, "") == Part("a")
    assert value_of([None, 1], list[float | None], "") == [None, 1.0]
    assert value_of(["a", 2], tuple[str, float], "") == ("a", 2.0)


@pytest.mark.parametrize(
    "content",
    ["[]", "3", '{"candidates": []}', '{"chosen": "x", "candidates": [1]}',
     '{"chosen": "x", "candidates": [{"name": "a", "scores": [NaN]}]}',
     '{"chosen": "x", "candidates": [{"name": "a", "settings": []}]}'],
)  # fmt: skip
def test_a_crafted_plan_is_refused_by_its_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(NewkindsError, match=r"plan\.json is damaged \(.+\): delete it, and the page"):
        PlanRecord.find(RunDirectory(tmp_path))


def test_an_evaluation_without_a_figure_that_is_shown(tmp_path: Path) -> None:
    content = EVALUATION.as_json()
    del content["as_found"]["nmi"]
    RunDirectory(tmp_path).write_json("evaluation.json", content)
    with pytest.raises(NewkindsError, match=r"evaluation\.json is damaged \(it does not say 'as_found\.nmi'\)"):
        Evaluation.read(RunDirectory(tmp_path))
