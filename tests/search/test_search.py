"""A search: candidates are judged on the same splits, what was judged stays, and the rule chooses."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from newkinds.assigners import ASSIGNERS
from newkinds.assigners.known_clusters import name_categories
from newkinds.assigners.nearest_images import NearestImage
from newkinds.assigners.resplit import Resplit, resplits, task_splits
from newkinds.cluster.metrics import Accuracy
from newkinds.data import load_table
from newkinds.data.loader import seed_for
from newkinds.errors import NewkindsError
from newkinds.runs.records import CandidateScore
from newkinds.search import ways
from newkinds.search.clock import Clock, seconds_of
from newkinds.search.frozen_features import CloserFeatures, FrozenFeatures, frozen_ways, is_first_favoured
from newkinds.search.search import JUDGED, Search, choose, judged, table_of_scores
from newkinds.search.trainings import TRAININGS, table_of_split, training_called
from newkinds.search.ways import Features, Judge, Way, judge_of, score_split

HOUR = 3600.0


def rows_of(targets: np.ndarray, noise: float = 0.1) -> torch.Tensor:
    torch.manual_seed(0)
    rows = torch.eye(int(targets.max()) + 1)[targets] + noise * torch.rand(len(targets), int(targets.max()) + 1)
    return torch.nn.functional.normalize(rows, dim=1)


class Pretended:
    """A training that gives what it is told to give."""

    def __init__(self, rows: torch.Tensor, needs: float = 1.0, error: str = "") -> None:
        self.name = self.training = "pretended"
        self.settings: Mapping[str, Any] = {"method": {"name": "simgcd"}}
        self.most_splits: int | None = 2
        self.images = len(rows)
        self.rows, self.seconds, self.error, self.asked = rows, needs, error, 0

    def unfit(self) -> str:
        return ""

    def needs(self) -> float:
        return self.seconds

    def features(self, split: Resplit, number: int) -> Features:
        self.asked += 1
        if self.error:
            raise NewkindsError(self.error)
        return Features(self.rows[split.rows], split.truth)


TARGETS = np.repeat(np.arange(6), 8)
NOISY = rows_of(TARGETS, noise=3.0)


def test_candidates_are_judged_on_every_split_and_named_by_source_and_way() -> None:
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.compare(FrozenFeatures(rows_of(TARGETS)), frozen_ways())
    assert [score.name for score in search.scores][:2] == [
        "frozen features, em",
        "frozen features, pim",
    ]
    assert {score.state for score in search.scores} == {JUDGED}
    assert {len(score.scores) for score in search.scores} == {4}
    assert {score.training for score in search.scores} == {""}
    assert search.choose().candidate.score == 1.0


def test_em_is_not_favoured_where_too_few_images_tell_how_to_whiten_them() -> None:
    """Noise in all directions and few images; then noise along one of them, which many show."""
    torch.manual_seed(0)
    targets = np.repeat(np.arange(6), 8)
    few = torch.nn.functional.normalize(torch.eye(60)[targets] + 0.1 * torch.randn(len(targets), 60), dim=1)
    before = torch.get_rng_state()
    assert not is_first_favoured(frozen_ways(), few, targets, 6, seed=0)
    assert is_first_favoured([Way("balanced"), Way("pim")], few, targets, 6, seed=0), "somebody named it"
    assert is_first_favoured(frozen_ways(), few.where(few < 0.5, torch.nan), targets, 6, seed=0)
    assert torch.equal(before, torch.get_rng_state())
    targets = np.repeat(np.arange(6), 60)
    noise = 0.05 * torch.randn(len(targets), 60)
    noise[:, 7] *= 10
    many = torch.nn.functional.normalize(torch.eye(60)[targets] + noise, dim=1)
    assert is_first_favoured(frozen_ways(), many, targets, 6, seed=0)


def test_what_is_favoured_is_left_only_for_what_is_better_by_more_than_chance() -> None:
    def chosen(first: list[float], second: list[float], favours_first: bool = True) -> str:
        scores = {"first": first, "second": second}
        return choose(
            [CandidateScore(name, scores=of, state=JUDGED) for name, of in scores.items()], favours_first
        ).candidate.name

    better_by_chance = [0.8, 0.5], [0.9, 0.5]
    assert chosen(*better_by_chance) == "first"
    assert chosen(*better_by_chance, favours_first=False) == "second"
    assert chosen([0.6, 0.6], [0.8, 0.8]) == "second"
    assert chosen([1.0, 1.0], [1.0, 1.0], favours_first=False) == "first"


def test_what_is_judged_is_the_assigner_as_it_gives_answers() -> None:
    [split] = resplits(TARGETS, 1, np.random.RandomState(0))
    rows, labels = NOISY[split.rows], torch.from_numpy(split.labels)
    torch.manual_seed(seed_for("categories", split.seed))
    em = ASSIGNERS["em"](rows.shape[1], split.known, split.categories)
    em.fit(rows, labels)
    want = name_categories(em(rows).argmax(dim=1).numpy(), split.labels, split.known, split.categories)
    np.testing.assert_array_equal(Way("em").find(Features(rows), split), want)


def test_a_source_that_trains_is_on_every_candidate_of_it() -> None:
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.compare(FrozenFeatures(NOISY), [Way("balanced")])
    search.compare(Pretended(NOISY), [Way("own"), Way("balanced")])
    trained = [score for score in search.scores if score.trains]
    assert [(score.name, score.training) for score in trained] == [
        ("pretended, own assigner", "pretended"),
        ("pretended, balanced", "pretended"),
    ]
    assert search.choose().candidate.name == "pretended, own assigner", "its categories are the truth"


def test_what_was_judged_is_not_judged_again_and_every_score_is_kept() -> None:
    kept: list[int] = []
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.keep_by(lambda: kept.append(len(search.scores)))
    search.compare(FrozenFeatures(NOISY), [Way("balanced")])
    again, source = Search(search.judge, Clock(HOUR), search.scores), Pretended(NOISY)
    again.compare(FrozenFeatures(NOISY), [Way("balanced"), Way("sskmeans")])
    assert kept == [1]
    assert again.scores[0] is search.scores[0]
    again.compare(source, [Way("own")])
    again.compare(source, [Way("own")])
    assert source.asked == 2, "on two splits, once"


def test_nothing_is_trained_that_cannot_change_the_result() -> None:
    source = Pretended(NOISY)
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.compare(FrozenFeatures(rows_of(TARGETS)), [Way("balanced")])
    search.compare(source, [Way("own"), Way("balanced")])
    assert source.asked == 0
    assert search.scores[-1].name == "pretended"
    assert search.scores[-1].state == "not tried: frozen features are right on every split already"


def test_no_larger_images_are_looked_at_if_all_is_right_already() -> None:
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.compare(FrozenFeatures(rows_of(TARGETS)), [Way("balanced")])
    larger = CloserFeatures(lambda: pytest.fail("a pass"), 60.0, 0.75, len(TARGETS), "frozen features at 336 px", {})
    search.compare(larger, [Way("balanced")])
    right_already = "not tried: frozen features are right on every split already"
    assert search.state_of("frozen features at 336 px, balanced") == right_already
    assert search.choose().candidate.name == "frozen features, balanced"


def test_without_time_a_training_is_not_begun_and_with_more_it_is() -> None:
    source = Pretended(NOISY, needs=100.0)
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(50.0))
    search.compare(FrozenFeatures(NOISY), [Way("balanced")])
    search.compare(source, [Way("own")])
    assert search.state_of("pretended").startswith("not tried: needs about 100 s, ")
    later = Search(search.judge, Clock(HOUR), search.scores)
    later.compare(source, [Way("own")])
    assert later.state_of("pretended") == ""
    assert later.state_of("pretended, own assigner") == JUDGED


def test_an_error_ends_a_training_and_the_search_goes_on() -> None:
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.compare(FrozenFeatures(NOISY), [Way("balanced")])
    search.compare(Pretended(NOISY, error="it diverged."), [Way("own")])
    assert search.state_of("pretended") == "stopped: it diverged."
    assert search.choose().candidate.name == "frozen features, balanced"


def test_an_error_of_one_way_ends_that_way_alone() -> None:
    def score(way: Way, features: Features, split: Resplit) -> Accuracy:
        if way.assigner == "ward":
            raise NewkindsError("too odd.")
        return Accuracy(0.5, 0.5, 0.5)

    search = Search(Judge(judge_of(TARGETS, 0, 6).splits, score), Clock(HOUR))
    search.compare(FrozenFeatures(NOISY), [Way("ward"), Way("balanced")])
    assert [score.state for score in search.scores] == ["stopped: too odd.", JUDGED]


def test_with_few_classes_the_first_is_the_default() -> None:
    search = Search(judge_of(np.array([0, 0, 1, 1, -1, -1]), seed=0, categories=3), Clock(HOUR))
    search.compare(FrozenFeatures(NOISY[:6]), frozen_ways())
    choice = search.choose()
    assert choice.candidate.name == "frozen features, em"
    assert choice.why == "the default: fewer than 4 classes with two labelled images leave nothing to judge by"


def test_names_are_judged_and_not_only_groups() -> None:
    """Two known classes that are taken for each other are wrong, although a match over all images would not see it."""
    [split] = resplits(TARGETS, 1, np.random.RandomState(0))
    swapped = np.where(split.truth == 0, 1, np.where(split.truth == 1, 0, split.truth))
    found = ways.hidden_accuracy(split, swapped)
    assert found.new == 1.0
    assert found.old == pytest.approx(np.mean(split.truth[split.hidden][split.truth[split.hidden] < split.known] > 1))
    assert ways.hidden_accuracy(split, split.truth).all == 1.0


def score_of(name: str, scores: list[float], trains: bool) -> CandidateScore:
    return judged(CandidateScore(name, trains=trains), [Accuracy(score, score, score) for score in scores], 1.0)


def test_training_must_win_by_more_than_its_standard_error() -> None:
    frozen = [score_of("a", [0.7, 0.8, 0.9], False), score_of("b", [0.6, 0.7, 0.8], False)]
    assert choose(frozen).candidate.name == "a"
    assert choose([*frozen, score_of("c", [0.75, 0.86, 0.94], True)]).candidate.name == "c"
    assert choose([*frozen, score_of("c", [0.90, 0.78, 0.75], True)]).candidate.name == "a", "+0.01 ± 0.09"
    stopped = replace(score_of("c", [1.0, 1.0, 1.0], True), state="stopped: it collapsed")
    assert choose([*frozen, stopped]).candidate.name == "a"


def test_the_best_training_that_is_worth_it_is_taken_also_if_a_doubtful_one_has_a_better_mean() -> None:
    frozen = score_of("a", [0.5, 0.5, 0.5], False)
    sure, doubtful = score_of("b", [0.55, 0.56, 0.57], True), score_of("c", [0.3, 0.9, 0.6], True)
    assert choose([frozen, sure, doubtful]).candidate.name == "b"


def test_a_training_that_has_lost_is_ended_and_one_that_could_win_is_not() -> None:
    """Compared with what the rule says of every end that it could take."""
    ends = np.linspace(0, 1, 21)
    random = np.random.RandomState(0)
    seen = set()
    for _ in range(40):
        frozen = score_of("a", random.uniform(0.5, 0.95, 3).round(2).tolist(), False)
        first = round(random.uniform(0.2, 1), 2)
        rivals = [score_of("b", random.uniform(0.5, 1, 3).round(2).tolist(), True)] * int(random.rand() < 0.5)
        search: Search[Resplit] = Search(Judge([], score_split), Clock(HOUR), [frozen, *rivals])
        could = any(
            choose([frozen, *rivals, score_of("c", [first, second, third], True)]).candidate.name == "c"
            for second in ends for third in ends
        )  # fmt: skip
        lost = search._why_lost([Accuracy(first, first, first)], splits=3)
        assert bool(lost) == (not could), (frozen.scores, [rival.scores for rival in rivals], first)
        seen.add(could)
    assert seen == {True, False}


def test_what_was_ended_is_not_begun_again_unless_it_wanted_time() -> None:
    source = Pretended(NOISY.flip(0))
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.compare(FrozenFeatures(rows_of(TARGETS, noise=2.0)), [Way("balanced")])
    search.compare(source, [Way("balanced")])
    assert "cannot be the best any more" in search.state_of("pretended")
    assert source.asked == 1, "on one split of two"
    again = Search(search.judge, Clock(HOUR), search.scores)
    again.compare(source, [Way("balanced")])
    assert source.asked == 1
    wanted = [replace(score, state="stopped: by its first steps it needs about 9 min") for score in search.scores[1:]]
    Search(search.judge, Clock(HOUR), [search.scores[0], *wanted]).compare(source, [Way("balanced")])
    assert source.asked == 2


def test_of_ways_that_may_differ_by_chance_alone_the_first_in_the_best_features_is_taken() -> None:
    """By the differences on the same splits, not by how far the splits themselves differ."""

    def score(name: str, scores: list[float], size: int = 112) -> CandidateScore:
        settings = {"backbone": {"image_size": size}, **Way(name).settings}
        return replace(score_of(name, scores, False), settings=settings)

    first, by_chance = score("a", [0.5, 0.7, 0.9]), score("b", [0.6, 0.67, 0.89])  # +.02 ± .04
    choice = choose([first, by_chance])
    assert choice.candidate is first
    assert "within a standard error of b with 72.0 %" in choice.why
    better = score("c", [0.52, 0.71, 0.93])  # +.02 ± .006
    assert choose([first, better]).candidate is better
    assert choose([by_chance, first]).candidate is by_chance
    assert choose([by_chance, better]).candidate is by_chance
    larger = score("d", [0.55, 0.77, 0.84], size=224)  # level with b, but other features
    assert choose([first, larger]).candidate is larger


def test_a_split_as_a_table_hides_what_the_split_hides() -> None:
    table = load_table({"name": "creatures", "categories": 10, "per_category": 8, "seed": 0})
    [split] = task_splits(table.targets, 10, 1, np.random.RandomState(0), most=60)
    small = table_of_split(table, split)
    assert small.truth is None
    assert small.targets.tolist() == split.labels.tolist()
    assert len(small) == 60
    assert small.categories == 10
    assert len(small.known) == split.known == 3, "of five two act as new"


def test_steps_count_and_not_epochs() -> None:
    training = replace(TRAININGS[0], steps=1000)
    assert training.epochs(12800) == 10
    assert training.epochs(1280) == 40, "of 25 steps at least"
    assert training.settings_for(1280)["train"]["epoch_size"] == 3200


@pytest.mark.parametrize("method", ["simgcd", "selex", "cms", "gcd", "infosieve"])
def test_any_method_may_be_trained(method: str) -> None:
    """A setting that SimGCD's family alone has ended the whole plan."""
    from newkinds.runs.config import resolve

    training = replace(TRAININGS[0], settings={"method": {"name": method}})
    config = resolve({"data": {"name": "creatures"}}, training.settings_for(1280))
    assert config.method["name"] == method


def test_a_training_is_known_by_its_name() -> None:
    assert len({training.name for training in TRAININGS}) == len(TRAININGS)
    assert all(training_called(training.name) is training for training in TRAININGS)
    with pytest.raises(NewkindsError, match="there is no training 'magic'"):
        training_called("magic")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5h", 5400), (None, 3600), (5.0, 5), (90, 90)]
)
def test_times(text: Any, seconds: float) -> None:
    assert seconds_of(text, HOUR) == seconds


@pytest.mark.parametrize("text", ["soon", "10 days", "-5m", "0s", "", 0, -3.0, float("inf")])
def test_what_is_no_time(text: Any) -> None:
    with pytest.raises(NewkindsError, match="is not a time"):
        seconds_of(text, HOUR)


def test_a_number_without_a_unit_is_refused() -> None:
    """It was minutes on the command line and seconds in Python."""
    with pytest.raises(NewkindsError, match=r"--time 90 has no unit: write 90s, 90m or 90h"):
        seconds_of("90", HOUR)


def test_of_very_many_images_some_are_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = np.arange(3000) % 10 - 2  # 300 of each of 8 classes, and others
    targets[targets < 0] = -1
    assert {len(split.rows) for split in judge_of(targets, seed=0, categories=10).splits} == {3000}
    monkeypatch.setattr(ways, "MOST_IMAGES", 500)
    some = judge_of(targets, seed=0, categories=10).splits
    assert {len(split.rows) for split in some} == {500}
    for split in some:
        assert len(np.unique(targets[split.rows])) == 9
        assert split.categories == 10
    monkeypatch.setattr(ways, "IMAGES_PER_CATEGORY", 100)
    assert len(judge_of(targets, seed=0, categories=10).splits[0].rows) == 1000


def test_assigners_that_compare_all_pairs_are_not_tried_on_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NearestImage, "most_images", 47)
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.compare(FrozenFeatures(NOISY), [Way("balanced"), Way("ward"), Way("meanshift")])
    states = {Way.of(score.settings).assigner: score.state for score in search.scores}
    assert states["balanced"] == JUDGED
    assert states["ward"] == states["meanshift"]
    assert states["ward"] == "not tried: it compares all pairs, too many of more than 47 images"


def test_the_table_has_the_best_first_marks_what_was_chosen_and_says_what_was_not_tried() -> None:
    scores = [
        CandidateScore("second", "", {}, False, [0.5, 0.7], 0.4, 0.6, 3.0, JUDGED),
        CandidateScore("never", "t", {}, True, [], None, None, 0.0, "not tried: no time"),
        CandidateScore("best", "t", {}, True, [0.8], 0.9, 0.7, 41.6, JUDGED),
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table_of_scores(scores, "second").splitlines()]
    assert rows[2:] == [
        ["", "best", "80.0", "90.0", "70.0", "42", ""],
        ["*", "second", "60.0 ± 10.0", "40.0", "60.0", "3", ""],
        ["", "never", "–", "–", "–", "0", "not tried: no time"],
    ]


def test_the_seconds_of_a_candidate_are_those_of_its_features_and_of_its_way() -> None:
    class Slow(Pretended):
        def features(self, split: Resplit, number: int) -> Features:
            time.sleep(0.02)
            return super().features(split, number)

    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(HOUR))
    search.compare(FrozenFeatures(NOISY), [Way("balanced")])
    search.compare(Slow(rows_of(TARGETS)), [Way("balanced"), Way("ward")])
    assert all(score.seconds >= 2 * 0.02 for score in search.scores if score.trains)
