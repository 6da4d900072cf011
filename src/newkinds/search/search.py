"""The search itself: each candidate is judged on the same splits, and the best by the rule is chosen.

A candidate is a source of features and a way to find categories in them; its name is its identity."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ..cluster.metrics import Accuracy
from ..console import say
from ..errors import NewkindsError
from ..runs.records import CandidateScore, PlanRecord, standard_error
from ..text import duration, percent, plural, text_table
from .clock import LACK, Clock
from .ways import Features, Judge, Way

JUDGED, STOPPED = "judged", "stopped: "
# what ends a candidate, and not the search: also what libraries say about matrices that no number fits into
FAILURES = (NewkindsError, ArithmeticError, ValueError, RuntimeError)
WAY_SECTIONS = ("assigner", "embedding")  # of the settings: see `Way.settings`; the others say where features come from
S_contra = TypeVar("S_contra", contravariant=True)
S = TypeVar("S")


class FeatureSource(Protocol[S_contra]):
    """Where features come from: the backbone, or a training on what a split leaves labelled."""

    name: str  # the first part of the names of its candidates
    training: str  # the name of what trains; empty: nothing does
    settings: Mapping[str, Any]  # of a run with these features, besides the way to find categories
    most_splits: int | None  # on which it is judged
    images: int  # that an answer is about

    def unfit(self) -> str:
        """Why it cannot be tried with these data; empty if it can."""

    def needs(self) -> float:
        """Seconds that judging it takes, and what follows if it is chosen."""

    def features(self, split: S_contra, number: int) -> Features:
        """The features of the images of a split, whose hidden labels it does not see."""


@dataclass(frozen=True)
class Choice:
    """What a search chose, and why."""

    candidate: CandidateScore
    why: str


class Search(Generic[S]):
    """Compares candidates, one source of features after another.

    >>> search = Search(judge_of(targets, seed=0), Clock(60.0))
    >>> search.compare(FrozenFeatures(rows), [Way("balanced"), Way("balanced", 0.5)])
    >>> search.choose().candidate.name

    `scores` are those of an earlier command, which are not computed again; `keep` is called with every new one.
    """

    def __init__(
        self, judge: Judge[S], clock: Clock, scores: Sequence[CandidateScore] = (),
        keep: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.judge, self.clock = judge, clock
        self.scores = list({score.name: score for score in scores}.values())
        self.favours_first = True  # of ways in the same frozen features, unless another is better by more than chance
        self._keep = keep

    def keep_by(self, keep: Callable[[], None]) -> None:
        """From now on, call this with every new score."""
        self._keep = keep

    def compare(self, source: FeatureSource[S], ways: Sequence[Way]) -> None:
        """Judge every way in the features of a source, unless that is done already or cannot be. What is true of all
        ways of a training stands in one row."""
        wanted = {f"{source.name}, {way}": way for way in ways}
        missing = {name: way for name, way in wanted.items() if not self._is_settled(name)}
        if not missing or self._is_settled(source.name):
            return
        if why_not := self._why_not(source):
            if source.training:
                missing = {source.name: ways[0]}
            for name, way in missing.items():
                self._note(replace(self._begin(source, name, way), state=f"not tried: {why_not}"))
            return
        if source.training:
            say(f"trying: {source.name} (about {duration(source.needs())}, {duration(self.clock.left)} are left)")
            self.scores = [score for score in self.scores if score.name != source.name]  # there was no time before
        for score in self._judge(source, missing):
            self._note(score)

    def _why_not(self, source: FeatureSource[S]) -> str:
        if not self.judge.splits:
            return self.judge.silent_because
        best = self.best(trains=False)
        if best is not None and min(best.scores) >= 1.0 and (source.training or source.needs()):
            return "frozen features are right on every split already"
        return source.unfit() or self.clock.lack(source.needs())

    def _judge(self, source: FeatureSource[S], ways: Mapping[str, Way]) -> list[CandidateScore]:
        """Each way on every split. What fails ends a way, or all of them if there are no features."""
        found: dict[str, list[Accuracy]] = {name: [] for name in ways}
        state: dict[str, str] = {}
        seconds = dict.fromkeys(ways, 0.0)
        splits = self.judge.splits[: source.most_splits]
        for number, split in enumerate(splits):
            started = time.perf_counter()
            try:
                features = source.features(split, number)
            except FAILURES as error:
                state = dict.fromkeys(ways, f"{STOPPED}{_reason(error)}")
                break
            shared = time.perf_counter() - started
            for name, way in ways.items():
                if name in state:
                    continue
                started = time.perf_counter()
                try:
                    if why_not := way.unfit(source.images):
                        state[name] = f"not tried: {why_not}"
                        continue
                    found[name].append(self.judge.score(way, features, split))
                except FAILURES as error:
                    state[name] = f"{STOPPED}{_reason(error)}"
                seconds[name] += shared + time.perf_counter() - started
                if source.training and name not in state and (lost := self._why_lost(found[name], len(splits))):
                    state[name] = f"{STOPPED}{lost}"
            if len(state) == len(ways):
                break
        if source.training and len(state) == len(ways) and len(set(state.values())) == 1:
            ways = {source.name: next(iter(ways.values()))}
            state = {source.name: next(iter(state.values()))}
        return [
            replace(self._begin(source, name, way), state=state[name])
            if name in state
            else judged(self._begin(source, name, way), found[name], seconds[name])
            for name, way in ways.items()
        ]

    def _why_lost(self, found: Sequence[Accuracy], splits: int) -> str:
        """Why a training cannot be chosen any more, even if all came out right on the other splits; empty if it can."""
        frozen = self.best(trains=False)
        if frozen is None or len(found) == splits:
            return ""
        scores = [float(accuracy.all) for accuracy in found]
        at_most = [*scores, *[1.0] * (splits - len(scores))]
        rival = best_training(self.scores, frozen)
        if wins(at_most, frozen) and (rival is None or float(np.mean(at_most)) > _mean(rival)):
            return ""
        there = f"{percent(float(np.mean(scores)))} % on {len(scores)} of {splits} splits"
        return f"{there}, so it cannot be the best any more"

    def _begin(self, source: FeatureSource[S], name: str, way: Way) -> CandidateScore:
        settings = {**source.settings, **way.settings}
        return CandidateScore(name, source.training, settings, trains=bool(source.training))

    def _note(self, score: CandidateScore) -> None:
        known = [other.name for other in self.scores]
        if score.name in known:
            self.scores[known.index(score.name)] = score
        else:
            self.scores.append(score)
        self._keep()

    def reject(self, candidate: CandidateScore, why: str) -> None:
        """A candidate failed on all images: it cannot be chosen any more, nor any other with the same training."""
        state = f"{STOPPED}{why}"
        if not self.state_of(candidate.name):
            self.scores.append(candidate)
        self.scores = [
            replace(score, state=state, scores=[])
            if score.name == candidate.name or (candidate.trains and score.training == candidate.training)
            else score
            for score in self.scores
        ]
        self._keep()

    def _is_settled(self, name: str) -> bool:
        """Whether more time, or another attempt, would say nothing new about a candidate."""
        state = self.state_of(name)
        return state == JUDGED or (state.startswith(STOPPED) and LACK not in state)

    def state_of(self, name: str) -> str:
        """What became of a candidate; empty if it was never looked at."""
        return next((score.state for score in self.scores if score.name == name), "")

    def best(self, trains: bool) -> CandidateScore | None:
        """The best that was judged, of those that train or, by the rule, of those that do not."""
        if not trains:
            return best_frozen(self.scores, self.favours_first)
        return max((score for score in self.scores if score.state == JUDGED and score.trains), key=_mean, default=None)

    def choose(self) -> Choice:
        """The best by the rule, or the first if nothing could be judged."""
        return choose(self.scores, self.favours_first)

    def choose_frozen(self) -> Choice:
        """The best of those that train nothing."""
        return choose([score for score in self.scores if not score.trains], self.favours_first)

    def record(
        self, choice: Choice | None, images: str, finished: bool, asked: Mapping[str, str] | None = None
    ) -> PlanRecord:
        """What is written down of it: what was compared and chosen for `images` (a digest), if that was `asked`."""
        return PlanRecord(
            chosen="" if choice is None else choice.candidate.name,
            why="" if choice is None else choice.why,
            rule=self.judge.rule,
            splits=len(self.judge.splits),
            budget_seconds=self.clock.seconds,
            spent_seconds=round(self.clock.spent, 1),
            images=images,
            asked=dict(asked or {}),
            finished=finished,
            candidates=self.scores,
            stages=self.clock.stages,
        )


def _reason(error: Exception) -> str:
    if isinstance(error, NewkindsError):
        return str(error)
    return f"it failed ({type(error).__name__}: {' '.join(str(error).split())[:120]})"


def judged(candidate: CandidateScore, accuracies: Sequence[Accuracy], seconds: float) -> CandidateScore:
    """The candidate with what the splits said."""
    old, new = (float(np.mean([getattr(found, part) for found in accuracies])) for part in ("old", "new"))
    scores = [float(found.all) for found in accuracies]
    return replace(
        candidate,
        scores=scores,
        old=None if np.isnan(old) else old,
        new=None if np.isnan(new) else new,
        seconds=round(seconds, 2),
        state=JUDGED,
    )


def choose(scores: Sequence[CandidateScore], favours_first: bool = True) -> Choice:
    """The best by the rule: what trains must win by more than the standard error of its gain, and so must a way in
    frozen features over those that are named before it, if these are favoured."""
    done = [score for score in scores if score.state == JUDGED]
    frozen = best_frozen(done, favours_first)
    if frozen is None:
        untried = (score for score in scores if not score.trains and score.state.startswith("not tried"))
        first = next(untried, None)
        if first is None:
            why = next((f" {score.name} {score.state}" for score in scores if score.state.startswith(STOPPED)), "")
            raise NewkindsError(f"no candidate could be judged.{why}")
        return Choice(first, f"the default: {first.state.removeprefix('not tried: ')}")
    on_hidden = "right where labels were hidden"
    best = best_training(done, frozen)
    shown = best or max((score for score in done if score.trains), key=_mean, default=None)
    if shown is None:
        first = max(done, key=_mean)
        beside = f"the best of {len(done)} that were judged"
        if first is not frozen:
            beside = f"within a standard error of {first.name} with {percent(first.score)} %, {beside}"
        return Choice(frozen, f"{percent(frozen.score)} % {on_hidden}, {beside}")
    gain, error = gain_of(shown.scores, frozen)
    against = f"{100 * gain:+.1f} ± {100 * error:.1f} against the best answer without it"
    figures = f"{percent(shown.score)} % {on_hidden}, {against}"
    if best is not None:
        return Choice(best, figures)
    return Choice(frozen, f"training did not pay: {shown.name} has {figures}")


def best_frozen(scores: Sequence[CandidateScore], favours_first: bool = True) -> CandidateScore | None:
    """Of those that train nothing the first way that is no more than a standard error behind the best one, in the
    same features; or the best one, if the first is not favoured."""
    judged = [score for score in scores if not score.trains and score.state == JUDGED]
    best = max(judged, key=_mean, default=None)
    if best is None or not favours_first:
        return best
    rivals = (score for score in judged if _features_of(score) == _features_of(best))
    return next(score for score in rivals if not wins(best.scores, score))  # the best does not win against itself


def _features_of(score: CandidateScore) -> dict[str, Any]:
    return {section: value for section, value in score.settings.items() if section not in WAY_SECTIONS}


def best_training(scores: Sequence[CandidateScore], frozen: CandidateScore) -> CandidateScore | None:
    """The best of those that train and are worth it, if any is."""
    trained = [score for score in scores if score.trains and score.state == JUDGED]
    return max((score for score in trained if wins(score.scores, frozen)), key=_mean, default=None)


def gain_of(scores: Sequence[float], frozen: CandidateScore) -> tuple[float, float]:
    """How much better scores are than those of a frozen answer on the same splits: the mean, and its standard error."""
    gains = np.subtract(scores, frozen.scores[: len(scores)])
    return float(gains.mean()), standard_error(gains.tolist()) or 0.0


def wins(scores: Sequence[float], frozen: CandidateScore) -> bool:
    """Whether a training with these scores is worth it. A higher score on any split never changes a yes into a no."""
    gain, error = gain_of(scores, frozen)
    return gain > error


def _mean(score: CandidateScore) -> float:
    assert score.score is not None, "it was judged"
    return score.score


def table_of_scores(scores: Sequence[CandidateScore], chosen: str) -> str:
    """What was compared, for the terminal."""
    states = {score.state for score in scores}
    if len(states) == 1 and JUDGED not in states:  # a table would say the same in every row
        return f"{plural(len(scores), 'candidate')}, all {states.pop()}"
    rows = []
    for score in sorted(scores, key=lambda one: -(one.score if one.score is not None else -1.0)):
        error = "" if score.error is None else f" ± {100 * score.error:.1f}"
        figures = [percent(score.score) + error, percent(score.old), percent(score.new)]
        state = "" if score.state == JUDGED else score.state
        mark = "*" if score.name == chosen else ""
        rows.append([mark, score.name, *figures, f"{score.seconds:.0f}", state])
    return text_table(["", "candidate", "All %", "Old %", "New %", "seconds", ""], rows)
