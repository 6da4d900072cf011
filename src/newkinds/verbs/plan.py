"""The plan of `discover` and `tune`: what is compared, kept in `plan.json`, so that the same command continues."""

from collections.abc import Mapping
from hashlib import sha256

from ..console import say
from ..data.splits import split_checksum
from ..data.table import Table
from ..encoders.backbones import Backbone
from ..errors import NewkindsError
from ..files import make_folder, remove_leftovers
from ..runs.config import OWN
from ..runs.records import CandidateScore, PlanRecord
from ..runs.run import Run
from ..search import trainings
from ..search.clock import LACK, Clock
from ..search.evidence import TrialEvidence
from ..search.frozen_features import WHITENINGS, FrozenFeatures, frozen_ways
from ..search.search import Choice, Search
from ..search.trainings import Material, TrainedFeatures, Training
from ..search.ways import Way, judge_of
from ..settings import flat
from .layers import Layers, drop_setting
from .stages import EmbeddedImages, Looked
from .train import train_in_memory

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

    def begin(self, images: EmbeddedImages) -> "PlannedSearch":
        """The search, with what is known from an earlier command about the same images."""
        if self.earlier is not None:
            with self.run.claimed():
                remove_leftovers(self.run.folder)
            say(f"continuing the plan in {self.run.folder}")
        scores = [] if self.earlier is None else self.earlier.candidates
        return PlannedSearch(self, images, digest_of(images.looked.table), scores)


class PlannedSearch:
    """The search of a plan: shipped candidates, as far as the user has not named what to take."""

    def __init__(self, plan: Plan, images: EmbeddedImages, digest: str, scores: list[CandidateScore]) -> None:
        self.plan, self.images = plan, images
        self.looked: Looked = images.looked
        self.clock = plan.clock
        judge = judge_of(self.looked.table.targets, self.looked.config.train.seed)
        self.search = Search(judge, self.clock, scores, self._write)
        self.evidence = TrialEvidence() if plan.earlier is None else TrialEvidence.read(plan.run)
        self._digest = digest
        self._choice: Choice | None = None
        self._keeps = plan.earlier is not None  # else nothing is written before the first answer
        self._finished = False

    @property
    def choice(self) -> Choice:
        assert self._choice is not None, "compare_frozen"
        return self._choice

    def compare_frozen(self) -> Choice:
        """Ways to find categories in frozen features."""
        ways = [self._allow(way) for way in frozen_ways()]
        self.search.compare(FrozenFeatures(self.images.rows), list(dict.fromkeys(ways)))
        frozen = [score for score in self.search.scores if not score.trains]
        self._choice = Search(self.search.judge, self.clock, frozen).choose()
        return self._choice

    def compare_trainings(self, categories: int) -> Choice:
        """Trainings, each judged in all ways that may be best after it, if there are so many categories."""
        self.evidence.categories = categories
        best = Way.of(self.choice.candidate.settings)
        for training in trainings.TRAININGS:
            unfit = why_unfit(training, self.looked.table, self.images.backbone, self.images.cache is not None)
            source = TrainedFeatures(training, self.material, self.clock, train_in_memory, unfit, self.evidence)
            self.search.compare(source, self._ways_after(best))
        self._choice = self.search.choose()
        return self._choice

    def reject(self, candidate: CandidateScore, why: str) -> Choice:
        """What was chosen failed on all images: the next best is taken."""
        self.search.reject(candidate, why)
        after = self.search.choose()
        self._choice = Choice(after.candidate, f"{candidate.name} failed on all images ({why}), so this is taken")
        self._write()
        return self._choice

    @property
    def material(self) -> Material:
        """What trainings are made of."""
        looked, splits = self.looked, self.search.judge.splits
        labelled = len(splits[0].rows) if splits else 0
        return Material(
            looked.table, self.images.rows, self.images.cache, looked.config_of, looked.image_seconds, labelled
        )

    def _allow(self, way: Way) -> Way:
        """The way with what the user named."""
        named = self.looked.config_of({"method": {"name": "frozen"}, **way.settings})
        return Way(named.assigner["name"], named.embedding["whiten"])

    def _ways_after(self, best: Way) -> list[Way]:
        """In trained features: by the method itself, and by the best assigner of frozen ones; what is named wins."""
        other = next(whiten for whiten in WHITENINGS if whiten != best.whiten)
        ways = [Way(OWN), best, Way(best.assigner, other)]
        named = self.looked.config_of({})
        if named.assigner["name"] != OWN:
            ways = [Way(named.assigner["name"], way.whiten) for way in ways]
        if named.embedding["whiten"] != "none":
            ways = [Way(way.assigner, named.embedding["whiten"]) for way in ways if way.assigner != OWN]
        return list(dict.fromkeys(ways))

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
        return self.search.record(self._choice, self._digest, self._finished, self.plan._asked())

    def _write(self) -> None:
        if self._keeps:
            self.evidence.write(self.plan.run)  # first: what the plan calls judged has its evidence
            self.record().write(self.plan.run)


def why_unfit(training: Training, table: Table, backbone: Backbone, cached: bool) -> str:
    """Why a training cannot be tried with these images; empty if it can."""
    if table.vectors is not None:
        return "ready-made vectors have no pixels" if training.passes else ""
    if training.passes == 0 and not cached:
        return "there is no place for a cache of class tokens"
    if training.passes and not backbone.is_plain_vit:
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


def settings_of_choice(candidate: CandidateScore, training: Training | None, images: int) -> Mapping[str, object]:
    """How a candidate is run on so many images: with the settings that a training has for them."""
    way = Way.of(candidate.settings).settings
    if training is None:
        return {**candidate.settings, **way}
    return {**training.settings_for(images), **way}
