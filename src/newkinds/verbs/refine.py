"""The verb that lets a run learn from what people corrected, in a new run directory."""

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from ..assigners.continued import ContinuedKMeans
from ..assigners.prototypes import PrototypeClassifier
from ..console import say, warn
from ..data import load_table
from ..data.corrections import NOWHERE, Correction, corrected_names, corrections_text, read_corrections
from ..data.table import Table, look_at_all, readable
from ..discovery.categories import Discovery
from ..discovery.edits import POOL
from ..discovery.finished import LoadedRun, load, read_features
from ..discovery.kinds import with_more_names
from ..discovery.lessons import changes, corrections_of, keep_decisions, require_corrections
from ..errors import NewkindsError, Skipped
from ..files import make_folder, remove_leftovers
from ..runs.changes import RefinedRecord
from ..runs.config import Config, resolve
from ..runs.directory import CORRECTIONS, TRAINING
from ..runs.protocol import record_refined
from ..runs.records import PlanRecord, Reliability
from ..runs.run import Run
from ..runs.seen_images import copies_left_out, earlier_images
from ..search.clock import Clock, seconds_of
from ..search.continuation import CONTINUED, Continuation, ContinuedFeatures
from ..search.folds import Fold, Lessons
from ..search.frozen_features import WHITENINGS, FrozenFeatures
from ..search.search import Choice, Search
from ..search.ways import Way
from ..training.device import choose_device
from ..training.embedding import Embedded
from ..training.model import Model, build_model
from ..training.start import take_weights
from .results import Correct, put_result
from .train import train_further, train_on

TEN_MINUTES = 600.0
OF_THE_RUN = "features of the run"


def refine(
    run: str | Path, out: str | Path | None = None, *, time: str | float | None = None, device: str = "auto",
) -> Discovery:  # fmt: skip
    """Let a run learn from what people corrected, and write the result as a run of its own; `run` is not changed.

    Accepted and moved images become labels, merged categories one, parts of a split one each; junk is left out. What
    was decided about an image stays, whatever the model says. `out` is `RUN-refined` by default. `time`: how long it
    may take ("10m", "2h", or a number of seconds; ten minutes by default). To resume, make the same call again.

    >>> found = newkinds.Discovery.read("runs/photos")
    >>> found.merge(["new-07", "new-09"])
    >>> newkinds.refine("runs/photos").run
    PosixPath('runs/photos-refined')
    """
    seconds = seconds_of(time, TEN_MINUTES)
    source = read_corrected(Run(run), device)
    target = _target_of(source, None if out is None else Path(out))
    if (record := RefinedRecord.find(target)) is not None and record.finished:
        say(f"{target.folder} has learnt these corrections already")
        target.drop_next()  # killed, it may not have come to that
        return Discovery.read(target.folder)
    clock = Clock(seconds)
    with target.claimed():
        return refine_into(begin_learning(target, source, clock), clock)


@dataclass(frozen=True)
class CorrectedRun:
    """A finished run, and what people said about it."""

    run: Run
    device: torch.device
    before: Discovery
    features: Tensor  # (n, D) of its images
    said: list[Correction]  # of each image
    new_id: dict[int, int]  # ids of its categories → those of the refined run
    names: list[str]  # of all categories, those with labels first
    known: int  # how many have labels


def read_corrected(run: Run, device: str, anything: bool = False) -> CorrectedRun:
    """All that refining begins with; an error if nobody has corrected anything, unless labels are enough."""
    before = Discovery.read(run.folder)
    if not anything:
        require_corrections(before)
    loaded, features = load(run.folder, device), read_features(run)
    if len(features) != len(before.members):
        raise NewkindsError(
            f"{run.folder} has features of {len(features)} images, but assigned {len(before.members)}: delete "
            "features.safetensors and run newkinds discover again."
        )
    embedding = partial(loaded.embedding, features)
    said, new_id = corrections_of(before, loaded.model.known, _clusters(loaded, before, features), embedding)
    if run.path(CORRECTIONS).is_file():  # it was refined itself: what was junk before stays out
        said += [c for c in read_corrections(run.verified(CORRECTIONS)) if c.status == "junk"]
    names, known = corrected_names(said)
    return CorrectedRun(run, choose_device(device), before, features, said, new_id, names, known)


def _clusters(loaded: LoadedRun, before: Discovery, features: Tensor) -> list[int]:
    """The cluster of each image: its category, or the one of several that a refined run has for that."""
    assigner = loaded.model.chosen_assigner
    if isinstance(assigner, ContinuedKMeans):
        rows = torch.from_numpy(loaded.embedding(features))
        clusters = (rows @ assigner.centres.cpu().T).argmax(dim=1).tolist()
    else:
        clusters = [member.category_id for member in before.found_members]
    # a labelled image that the model would put elsewhere lies in no cluster of its class, the pool in none at all
    found = zip(clusters, before.found_members, strict=True)
    return [
        cluster if member.model_category_id is None and member.category_id != POOL else NOWHERE
        for cluster, member in found
    ]


def _target_of(source: CorrectedRun, out: Path | None) -> Run:
    """Where to write: a folder that is free, or that holds these corrections already."""
    name = f"{source.run.folder.resolve().name}-refined"
    folder, number = out or source.run.folder.with_name(name), 2
    while not _fits(Run(folder), source):
        if out is not None:
            raise NewkindsError(
                f"{folder} holds another run, or what {source.run.folder} learnt from other corrections than it has "
                "now: choose another --out."
            )
        folder = source.run.folder.with_name(f"{name}-{number}")
        number += 1
    return Run(folder)


def _fits(target: Run, source: CorrectedRun) -> bool:
    if target.folder.resolve() == source.run.folder.resolve():
        raise NewkindsError(f"{target.folder} is the run itself, which stays as it is: choose another --out.")
    if not target.path(CORRECTIONS).is_file():
        target.refuse_other_contents()
        return not target.path("config.yaml").is_file()  # else it is another run
    return read_corrections(target.verified(CORRECTIONS)) == source.said


# -- learning ----------------------------------------------------------------------------------------------------------


def begin_learning(target: Run, source: CorrectedRun, clock: Clock, page: bool = True) -> "Learner":
    """Take over what people said, into the folder of the refined run."""
    with clock.stage(f"take over what was corrected in {source.run.folder}"):
        make_folder(target.folder)
        target.write(CORRECTIONS, corrections_text(source.said))
        config = _config(source, target)
        table, features = _images(source, config)
        lessons = _lessons(source, table, config)
    return Learner(source, target, config, table, features, lessons, page)


def refine_into(learner: "Learner", clock: Clock) -> Discovery:
    """Learn, and write all that a run has: first from the features that are there, then from the weights if it pays."""
    source, target, config = learner.source, learner.target, learner.config
    table, lessons = learner.table, learner.lessons
    search = _begin_search(target, lessons, clock)
    with clock.stage("find the categories again in the features of the run"):
        search.compare(FrozenFeatures(learner.rows(config), OF_THE_RUN, {}), _ways(source))
        choice = search.choose()
        config = with_whitening(config, choice)
    more = Continuation(source.run, config, table, lessons, learner.begin)
    with clock.stage("write what was found"):
        found = learner.write_frozen(config)
        _record(learner, found, choice, clock, finished=False)
    say(f"a first complete answer is in {target.folder}; Ctrl-C leaves it there, the same command goes on")
    with clock.stage("continue the training, judged by hidden labels"):
        search.compare(ContinuedFeatures(more, clock, train_further), _ways(source))
        choice = search.choose()
    say(choice.why)
    if choice.candidate.training:
        with clock.stage("train on all images"):
            found = learner.write_trained(more, choice)
    _record(learner, found, choice, clock, finished=True)
    _write_plan(target, lessons, search, choice, finished=True)
    target.drop_next()
    return found


def _begin_search(target: Run, lessons: Lessons, clock: Clock) -> Search[Fold]:
    """The search, with what an earlier command has judged already by the same corrections."""
    earlier = PlanRecord.find(target)
    judge = lessons.judge()
    search = Search(judge, clock, [] if earlier is None else earlier.candidates)
    search.keep_by(lambda: _write_plan(target, lessons, search, None))
    return search


def _write_plan(
    target: Run, lessons: Lessons, search: Search[Fold], choice: Choice | None, finished: bool = False
) -> None:
    digest = sha256(lessons.labels.tobytes()).hexdigest()[:32]
    search.record(choice, digest, finished).write(target)


def _ways(source: CorrectedRun) -> list[Way]:
    """What to compare; the whitening of the run comes first, and so wins if all are equal."""
    own = source.run.config().embedding["whiten"]
    if own == "auto":
        own = next(whiten for whiten in WHITENINGS if whiten != "none")
    return [Way("continued", whiten) for whiten in dict.fromkeys([own, *WHITENINGS])]


def with_whitening(config: Config, choice: Choice) -> Config:
    """The settings with the whitening that was chosen."""
    return resolve(config.as_dict(), {"embedding": {"whiten": Way.of(choice.candidate.settings).whiten}})


def _config(source: CorrectedRun, target: Run) -> Config:
    """The settings of the run, with other labels and another number of categories."""
    there = source.run.config().as_dict()
    by = {"corrections": str(target.path(CORRECTIONS).resolve()), "refines": str(source.run.folder.resolve())}
    same = {section: values for section, values in there.items() if section not in ("assigner", "embedding")}
    own = {"assigner": {"name": "continued"}, "embedding": {"whiten": "none"}, "k": len(source.names)}
    return resolve(same, {"data": {"name": there["data"]["name"], **by}}, own)


def _images(source: CorrectedRun, config: Config) -> tuple[Table, Tensor]:
    """The images that are left, and their features (n, D): none is read again that is as it was."""
    earlier, run = earlier_images(source.run), source.run
    row_of = {member.path: row for row, member in enumerate(source.before.members)}
    kept = {c.path for c in source.said if c.status != "junk"}
    table = load_table(config.data)
    table = table.rows([row for row, path in enumerate(table.paths) if path not in copies_left_out(run)])
    others = table.rows([row for row, path in enumerate(table.paths) if path not in kept])
    seen = zip(others.paths, look_at_all(others), strict=True)
    if added := [path for path, image in seen if not isinstance(image, Skipped)]:  # what is damaged cannot be added
        are = "image is" if len(added) == 1 else "images are"
        warn(
            f"{len(added):,} {are} not in {run.folder}, such as {added[0]}: left out here. newkinds update "
            f"{run.folder} puts what came into its categories."
        )
    table = table.rows([row for row, path in enumerate(table.paths) if path in kept])
    table = readable(table, contents=True, earlier=earlier)
    if gone := sorted(kept - set(table.paths)):
        raise NewkindsError(
            f"{len(gone)} image(s) of {run.folder} cannot be read any more, such as {gone[0]}: restore them, or make "
            f"them junk (newkinds junk {run.folder} …)."
        )
    contents = zip(table.paths, table.contents or [], strict=True)
    if changed := [path for path, content in contents if path in earlier and earlier[path].content != content]:
        raise NewkindsError(
            f"{len(changed)} image(s) changed since {run.folder} was started, such as {changed[0]}: restore them, or "
            "run newkinds discover again, which keeps names and corrections."
        )
    return table, source.features[[row_of[path] for path in table.paths]]


def _lessons(source: CorrectedRun, table: Table, config: Config) -> Lessons:
    said = {c.path: c for c in source.said}
    in_order = [said[path] for path in table.paths]
    categories, groups = len(source.names), table.group_numbers()
    return Lessons(in_order, table.targets, source.known, categories, config.train.seed, groups)


@dataclass(frozen=True)
class Learner:
    """Makes models that have learnt the lessons, and writes what they find."""

    source: CorrectedRun
    target: Run
    config: Config  # that it begins with
    table: Table
    features: Tensor  # (n, D) of the run
    lessons: Lessons
    page: bool = True  # whether a page is written

    def rows(self, config: Config) -> Tensor:
        """Unit rows (n, P) of the run's features, not whitened."""
        model = self._with_weights(config)
        with torch.no_grad():
            return model.rows(self.features.to(model.device)).float().cpu()

    def begin(self, config: Config, lessons: Lessons) -> Model:
        """A model with the weights of the run that has found the categories again in its features.

        Prototypes, which no loss has learnt for these categories yet, begin with the means of their images.
        """
        model = self._with_weights(config)
        self.find(model, self.features, lessons)
        own, labels = model.method.assigner(), torch.from_numpy(lessons.labels).to(model.device)
        if isinstance(own, PrototypeClassifier) and own.categories == model.k:
            with torch.no_grad():
                features = self.features.to(model.device)
                rows = model.method.embedding(features)
                cluster = model.chosen_assigner(model.embedding(features)).argmax(dim=1)
                cluster = torch.where(labels >= 0, labels, cluster)
                means = torch.zeros_like(own.prototypes).index_add_(0, cluster, rows.to(own.prototypes))
                own.prototypes.copy_(means)
        model.begins_organized = True
        return model

    def _with_weights(self, config: Config) -> Model:
        model = build_model(config, self.source.names[: self.source.known], len(self.source.names), load_weights=False)
        take_weights(model, self.source.run)
        return model.to(self.source.device).eval()

    def find(self, model: Model, features: Tensor, lessons: Lessons) -> None:
        """Whitening, categories and confidence."""
        assert isinstance(model.assigner, ContinuedKMeans), "_config"
        model.assigner.begin_with(lessons.pieces())
        labels = torch.from_numpy(lessons.labels)
        model.find_categories(features, labels, lessons.seed)
        model.calibrate(features, labels, lessons.seed)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write_frozen(self, config: Config) -> Discovery:
        """A run with the weights that there were."""
        model = self.begin(config, self.lessons)
        return self._write(self.target, config, model, self.features, self.source.run, self._keep_decisions)

    def write_trained(self, more: Continuation, choice: Choice) -> Discovery:
        """A run with weights that were trained on, in the place of the first."""
        config = with_whitening(more.train_config(), choice)

        def write(next_run: Run, correct: Correct) -> Discovery:
            begun = self.begin(config, self.lessons)
            trained = train_on(self.table, config, next_run, model=begun)
            embedded = trained.embed(self.table)
            model = trained.loaded.model
            self.find(model, embedded.features, self.lessons)
            return self._write(next_run, config, model, embedded.features, next_run, correct)

        return put_result(self.target, config, write, keep_earlier=False, page=self.page)

    def _keep_decisions(self, found: Discovery) -> None:
        keep_decisions(found, self.lessons.said)

    def _write(
        self, run: Run, config: Config, model: Model, features: Tensor, weights: Run, correct: Correct
    ) -> Discovery:
        """All files of a run; `weights`: the run whose weights the model has."""
        remove_leftovers(run.folder)
        run.write("config.yaml", config.as_yaml())
        record_refined(run, config, self.table, weights, self.source.device)
        if run is not weights:
            run.copy_from(weights, TRAINING)
        run.copy_from(self.target, [CORRECTIONS] if run is not self.target else [])
        Reliability.of_json(model.calibration.record).write(run)
        run.write("model.safetensors", model.as_safetensors())
        loaded = LoadedRun(run, model, list(enumerate(with_more_names(self.source.names, model.categories))))
        waiting = {member.path for member in self.source.before.pool}
        return loaded.show(self.table, Embedded.of_all(features), self.page, correct, waiting)


def _record(learner: Learner, found: Discovery, choice: Choice, clock: Clock, finished: bool) -> None:
    """What was learnt, for the terminal and the page."""
    source = learner.source
    why = [choice.why] if finished and (choice.candidate.training or "training" in choice.why) else []
    replace(
        changes(source.before, found, source.said, source.new_id),
        learnt=[*_sentences(learner, choice), *why],
        chosen=choice.candidate.name,
        seconds=round(clock.spent, 1),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        finished=finished,
    ).write(learner.target)


def _sentences(learner: Learner, choice: Choice) -> list[str]:
    """How well it can be trusted, in words."""
    best, lessons = choice.candidate, learner.lessons
    score = best.score
    said = [f"{best.name}: {100 * score:.1f} % of held-out labels are found again"] if score else []
    if best.training != CONTINUED:
        config = learner.target.config()
        share = lessons.share_of_decided(learner.rows(config), Way.of(best.settings))
        if share is not None:
            n, right = int(lessons.decided.sum()), sum(c.status == "accepted" for c in lessons.said)
            said.append(
                f"of {n} images that you decided about, {100 * share:.0f} % are put there by the refined model alone "
                f"(before: {100 * right / n:.0f} %)"
            )
    return said
