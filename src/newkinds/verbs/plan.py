"""The plan of `discover` and `tune`: what is compared, kept in `plan.json`, so that the same command continues."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

from torch import Tensor

from ..console import say
from ..data.splits import split_checksum
from ..data.table import Table
from ..encoders.backbone import Backbone
from ..errors import NewkindsError
from ..files import make_folder, remove_leftovers
from ..runs.config import OWN, Config
from ..runs.directory import RunDirectory
from ..runs.records import CandidateScore, NumberSeen, PlanRecord
from ..runs.run import Run
from ..search import trainings
from ..search.clock import LACK, Clock
from ..search.evidence import TrialEvidence
from ..search.frozen_features import (
    FROZEN,
    NOTHING_TRAINS,
    CloserFeatures,
    FrozenFeatures,
    frozen_ways,
    is_first_favoured,
)
from ..search.search import JUDGED, Choice, Search
from ..search.trainings import Material, TrainedFeatures, Trainer, Training
from ..search.ways import Way, judge_of
from ..settings import flat
from .layers import Layers, drop_setting
from .stages import SHARE_OF_LOOK, EmbeddedImages, ImageSize, Looked, embed_once
from .train import step_seconds, train_in_memory, uncached_views

TRAINER = Trainer(train_in_memory, step_seconds, uncached_views)
ANYTIME = ("train.device", "train.workers")  # settings that do not change what is found


class Plan:
    """A search for the best way to find the categories of some images, and the file in which it is kept."""

    def __init__(self, run: Run, layers: Layers, seconds: float) -> None:
        # whether to whiten is chosen anyway; what follows can only be told a shrinkage
        self.layers = [drop_setting(layer, "embedding", "whiten", "auto") for layer in layers]
        self.run = run
        self.earlier = self._read()
        self.clock = Clock(seconds)
        if self.earlier is not None:
            self.clock = Clock(seconds, self.earlier.spent_seconds, self.earlier.stages)

    def _read(self) -> PlanRecord | None:
        """What an earlier command has judged already, if it asked for the same."""
        record = PlanRecord.find(self.run)
        if record is None:
            if self.run.path("config.yaml").is_file():
                raise NewkindsError(
                    f"{self.run.folder} holds a run that was not planned: choose another --out, or name its method."
                )
            return None
        asked = self._asked()
        for name in sorted({*asked, *record.asked}):
            if asked.get(name) != record.asked.get(name):
                raise NewkindsError(_other_settings(self.run, name, record.asked.get(name), asked.get(name)))
        return record

    def _asked(self) -> dict[str, str]:
        """What the user named, as text: a run of the same command asks for the same."""
        named = {name: value for layer in self.layers for name, value in flat(layer).items()}
        return {name: str(value) for name, value in named.items() if name not in ANYTIME}

    def take_images(self, table: Table) -> None:
        """Begin again, with all of the time, if an earlier command has planned for other images."""
        if self.earlier is not None and self.earlier.images != digest_of(table):
            say(f"the images or labels changed since the plan in {self.run.folder} was made: it begins again")
            self.earlier = None
            self.clock = Clock(self.clock.seconds)

    def is_finished(self) -> bool:
        """Whether there is nothing left to do: all was compared, and more time would not change that."""
        before = self.earlier
        if before is None or not before.finished:
            return False
        more_time = before.budget_seconds is not None and self.clock.seconds > before.budget_seconds
        return not (more_time and any(LACK in score.state for score in before.candidates))

    def begin(self, images: EmbeddedImages, categories: int, seen: NumberSeen | None = None) -> "PlannedSearch":
        """The search for so many categories, with what is known from an earlier command about the same images. `seen`:
        how many they look like, if somebody gave their number."""
        if self.earlier is not None:
            with self.run.claimed():
                remove_leftovers(self.run.folder)
            say(f"continuing the plan in {self.run.folder}")
        scores = [] if self.earlier is None else self.earlier.candidates
        return PlannedSearch(self, images, categories, scores, seen)


class PlannedSearch:
    """The search of a plan: shipped candidates, as far as the user has not named what to take."""

    def __init__(
        self, plan: Plan, images: EmbeddedImages, categories: int, scores: list[CandidateScore],
        seen: NumberSeen | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.images, self.categories, self.seen = plan, images, categories, seen
        self.clock = plan.clock
        table = self.looked.table
        judge = judge_of(table.targets, self.looked.config.train.seed, categories, table.group_numbers())
        self.search = Search(judge, self.clock, scores, self._write)
        self.evidence = TrialEvidence() if plan.earlier is None else TrialEvidence.read(plan.run)
        self._digest = digest_of(table)
        self._choice = self._default()
        self._keeps = plan.earlier is not None  # else nothing is written before the first answer
        self._finished = False

    @property
    def looked(self) -> Looked:
        """The images, at the size that is the best so far."""
        return self.images.looked

    @property
    def choice(self) -> Choice:
        """What is the best so far; at first, the usual way."""
        return self._choice

    def config(self, k: int) -> Config:
        """The settings of a run with what is chosen, if nothing is trained."""
        return self.looked.config_of(self.choice.candidate.settings, k)

    def _default(self) -> Choice:
        about, way = _about_size(self.looked.size), self._ways()[0]
        settings = {**about["settings"], **way.settings}
        return Choice(CandidateScore(f"{about['name']}, {way}", settings=settings), "nothing was compared yet")

    def compare_frozen(self) -> Choice:
        """Ways to find categories in frozen features."""
        source = FrozenFeatures(self.images.rows, **_about_size(self.looked.size), evidence=self.evidence)
        if self.search.judge.splits:
            targets, seed = self.looked.table.targets, self.looked.config.train.seed
            rows, ways = self.images.rows, self._ways()
            self.search.favours_first = is_first_favoured(ways, rows, targets, self.categories, seed)
        self.search.compare(source, self._ways())
        return self._choose_frozen()

    def look_closer(self) -> Choice:
        """Compare features of larger images, by labelled ones alone: of the largest size that there is time for.

        None is looked at if the first are right on every split, as the states of all sizes then say.
        """
        looked = self.looked
        larger = looked.sizes[looked.sizes.index(looked.size) + 1 :] if self.search.judge.splits else ()
        for size in reversed(larger):
            source = CloserFeatures(
                images=len(looked.table), seconds=size.seconds, share=SHARE_OF_LOOK,
                embed=partial(_rows_at, looked.at(size)), evidence=self.evidence, **_about_size(size),
            )  # fmt: skip
            self.search.compare(source, self._ways())
            if any(self.search.state_of(f"{source.name}, {way}") == JUDGED for way in self._ways()):
                break
        return self._choose_frozen()

    def _choose_frozen(self) -> Choice:
        """The best without a training. The images are embedded at its size."""
        self._choice = self.search.choose_frozen()
        pixels = self._choice.candidate.settings["backbone"]["image_size"]
        wanted = next(size for size in self.looked.sizes if size.pixels == pixels)
        if wanted != self.looked.size:
            self.images = embed_once(self.looked.at(wanted))
        return self._choice

    def compare_trainings(self) -> Choice:
        """Trainings, each judged in all ways that may be best after it."""
        for training in trainings.TRAININGS:
            unfit = why_unfit(training, self.looked.table, self.images.backbone, self.images.cache is not None)
            source = TrainedFeatures(
                training, self.material, self.clock, TRAINER, unfit, str(self.looked.size), self.evidence
            )
            self.search.compare(source, self._ways_after())
        self._choice = self.search.choose()
        return self._choice

    def reject(self, candidate: CandidateScore, why: str) -> Choice:
        """What was chosen failed on all images: the next best is taken."""
        self.search.reject(candidate, why)
        after = self.search.choose() if candidate.trains else self._choose_frozen()
        self._choice = Choice(after.candidate, f"{candidate.name} failed on all images ({why}), so this is taken")
        self._write()
        return self._choice

    @property
    def material(self) -> Material:
        """What trainings are made of."""
        looked, splits = self.looked, self.search.judge.splits
        judged = len(splits[0].rows) if splits else 0
        return Material(
            looked.table, self.images.rows, self.images.cache, looked.config_of, looked.size.image_seconds, judged,
            self.categories,
        )  # fmt: skip

    def _named(self) -> dict[str, Any]:
        """What the user named, by the full names of settings."""
        return {name: value for layer in self.looked.layers for name, value in flat(layer).items()}

    def _ways(self) -> list[Way]:
        named = self._named()
        assigner = named.get("assigner.name")
        return frozen_ways(None if assigner == OWN else assigner, named.get("embedding.whiten"))

    def _ways_after(self) -> list[Way]:
        """In trained features: by the method itself, and in the ways of frozen ones; what is named wins."""
        named = self._named()
        if named.get("assigner.name", OWN) != OWN or named.get("embedding.whiten", "none") != "none":
            return self._ways()
        return [Way(OWN), *self._ways()]

    # -- keeping -----------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """From here on what is judged is written down: killed, the same command continues."""
        self._keeps = True
        make_folder(self.plan.run.folder)
        self._write()

    def finish(self) -> PlanRecord:
        """Nothing is left to do."""
        self._finished = True
        self._write()
        return self.record()

    def record(self) -> PlanRecord:
        record = self.search.record(self._choice, self._digest, self._finished, self.plan._asked())
        return replace(record, number_seen=self.seen)

    def _write(self) -> None:
        if self._keeps:
            self.evidence.write(self.plan.run)  # first: what the plan calls judged has its evidence
            self.record().write(self.plan.run)


def _about_size(size: ImageSize) -> dict[str, Any]:
    """Name and settings of frozen features of images of a size."""
    return {"name": f"{FROZEN}{size}", "settings": {**NOTHING_TRAINS, "backbone": {"image_size": size.pixels}}}


def _rows_at(looked: Looked) -> Tensor:
    return embed_once(looked).rows


def why_unfit(training: Training, table: Table, backbone: Backbone, cached: bool) -> str:
    """Why a training cannot be tried with these images; empty if it can."""
    if table.vectors is not None:
        return "ready-made vectors have no pixels" if training.views else ""
    if not training.views and not cached:
        return "there is no place for a cache of class tokens"
    if training.views and not backbone.is_plain_vit:
        return "the blocks of this backbone cannot be cached"
    return ""


def digest_of(table: Table) -> str:
    """Changes with the images of a table, their pixels and their labels."""
    pixels = "\n".join(table.contents or [])
    return sha256(f"{split_checksum(table)}\n{pixels}".encode()).hexdigest()[:32]


def _other_settings(run: Run, name: str, there: str | None, here: str | None) -> str:
    flag = {"backbone.weights": "--weights", "k": "--k", "backbone.name": "--backbone"}.get(name, f"--set {name}=…")
    if here is None:
        how = f"add {flag.replace('…', str(there))}" + (f" {there}" if "…" not in flag else "")
    elif there is None:
        how = f"leave out {flag.removesuffix('=…')}"
    else:
        how = f"it was {there} there"
    return (
        f"{run.folder} holds a plan with other settings ({name}): to continue it, {how}; to begin another, choose "
        "another --out."
    )


def untried_sizes_text(run: RunDirectory) -> str:
    """That larger images were not tried for want of time, and how much would do; empty if they were."""
    record = PlanRecord.find(run)
    lacking = [] if record is None else [one for one in record.candidates if not one.trains and LACK in one.state]
    if not lacking:
        return ""
    pixels = {one.settings["backbone"]["image_size"]: one.state.removeprefix("not tried: ") for one in lacking}
    smallest = min(pixels)
    return (
        f"images of {smallest} px, which often gain most, were not tried: that {pixels[smallest]}. The same command "
        "with more --time goes on from here."
    )


def settings_of_choice(candidate: CandidateScore, training: Training | None, images: int) -> Mapping[str, object]:
    """How a candidate is run on so many images: with the settings that a training has for them."""
    way = Way.of(candidate.settings).settings
    if training is None:
        return {**candidate.settings, **way}
    return {**training.settings_for(images), **way}
