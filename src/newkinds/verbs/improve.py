"""A better model for a run that has grown, in the same run: it is refined beside, and takes the place of the present
one if held-out labels are found again more often, or as often with categories that the present
model does not know. Ids, names and decisions stay."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from ..console import say
from ..data.corrections import NOWHERE, corrections_text
from ..data.table import Table
from ..discovery.categories import Discovery
from ..discovery.described import Described, write_described
from ..discovery.edits import POOL, POOL_NAME
from ..discovery.finished import FEATURES, LoadedRun, images_of, load, read_features, unlike_of
from ..discovery.growing import categories_of
from ..discovery.kinds import Category, Member, with_more_names
from ..discovery.lessons import enter_decisions
from ..discovery.split import EMBEDDING
from ..ownership import remove_own_folder
from ..runs.changes import UpdateHistory, UpdateRecord
from ..runs.config import Config
from ..runs.directory import BEGINNING, CORRECTIONS
from ..runs.protocol import describe_protocol, record_grown
from ..runs.records import Findings, PlanRecord, Reliability
from ..runs.run import Run
from ..search.clock import Clock
from ..training.embedding import Embedded
from ..training.model import Model
from .refine import CorrectedRun, Learner, begin_learning, read_corrected, refine_into
from .results import Correct, put_result

BESIDE = ".refined"  # the folder of a run in which it is refined


def improve(run: Run, seconds: float, device: str, page: bool, updated: bool) -> Discovery:
    """Look for a better model so long; the run as it is then. A killed attempt goes on with the next one.

    `updated`: it belongs to the update that was just made, and is undone with it.
    """
    found = Discovery.read(run.folder)
    source = read_corrected(run, device, anything=True)
    beside = Run(run.path(BESIDE))
    if not _begins_alike(beside, source):
        drop_beside(run)
    if not source.known:
        say("the model stays as it is: no image has a label or was decided about, so there is nothing to learn from")
        return found
    clock = Clock(seconds)
    with beside.claimed():
        learner = begin_learning(beside, source, clock, page=False)
        refine_into(learner, clock)
    plan = PlanRecord.read(beside)
    best = next(one for one in plan.candidates if one.name == plan.chosen)
    score = -1.0 if best.score is None else best.score
    # a training is judged on the first of the folds only
    share = float(np.mean(present_shares(load(run.folder, device).model, learner)[: len(best.scores) or None]))
    if not _wins(score, share, found, source):
        judged = "could not be judged" if best.score is None else f"{100 * score:.1f} %"
        say(f"the model stays as it is: it finds {100 * share:.1f} % of held-out labels again, {best.name} {judged}")
    else:
        sentence = f"{best.name}: {100 * score:.1f} % of held-out labels are found again, {100 * share:.1f} % before"
        adopted = _Adopted(run, beside, source, sentence, updated)
        found = put_result(run, adopted.config(), partial(_adopt, adopted), page=page)
        say(f"a better model: {sentence}")
    drop_beside(run)
    return found


def drop_beside(run: Run) -> None:
    """Throw an attempt away."""
    beside = Run(run.path(BESIDE))
    beside.drop_next()
    beside.forget_edits()
    remove_own_folder(beside.folder)


def present_shares(model: Model, learner: Learner) -> list[float]:
    """Of the labels that each fold hides, the share that the present model finds again: in its own space and by its own
    clusters, both without the images of the fold. So the better model is judged, too."""
    with torch.inference_mode():
        rows = model.rows(learner.features.to(model.device)).float().cpu()  # (n, P)
    return [float(learner.lessons.find_unlearnt(rows, model.space_of, fold).mean()) for fold in learner.lessons.folds()]


def _wins(score: float, share: float, found: Discovery, source: CorrectedRun) -> bool:
    """Whether the better model is one. Equal ones are told apart by whether categories came that the present does not
    know."""
    if abs(score - share) > 1e-9:
        return score > share
    known = len(load(source.run.folder, str(source.device)).categories)
    return len(found.found_categories) > known


def _begins_alike(beside: Run, source: CorrectedRun) -> bool:
    """Whether an attempt that was interrupted had begun with the same."""
    file = beside.path(CORRECTIONS)
    return file.is_file() and file.read_text(encoding="utf-8") == corrections_text(source.said)


@dataclass(frozen=True)
class _Adopted:
    """A refined run that is to become the run itself."""

    run: Run
    beside: Run
    source: CorrectedRun
    sentence: str
    updated: bool

    def config(self) -> Config:
        """Its settings, with the labels that it was taught in the run's own file."""
        config = self.beside.config()
        file = str(self.run.path(CORRECTIONS).resolve())
        return replace(config, data={**config.data, "corrections": file, "refines": str(self.run.folder.resolve())})

    def categories(self, before: Discovery, count: int) -> list[tuple[int, str]]:
        """Id and name of each category of the model: ids are those that they had. Names that people gave to categories
        without labels are entered as edits, so that they stay names that people gave."""
        old = {new: number for number, new in self.source.new_id.items()}
        next_id, as_found = before.corrections().next_id, before.names_as_found()
        names = with_more_names(self.source.names, count)
        made = []
        for place, name in enumerate(names):
            number = old.get(place)
            if number is None:
                number, next_id = next_id, next_id + 1
            first = as_found.get(number, name)
            made.append((number, first if place >= self.source.known and first not in names else name))
        return made

    def history(self, before: Discovery, taken: int) -> UpdateHistory:
        """With this as a part of the update, or as an entry of its own."""
        updates = UpdateHistory.of(self.run).updates
        if self.updated:
            last = replace(updates[-1], better_model=self.sentence, next_id=taken)
            return UpdateHistory([*updates[:-1], last])
        number = max((update.number for update in updates), default=0) + 1
        at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        own = UpdateRecord(
            number, at, 0, {}, len(before.pool), taken, edits=before.revision, better_model=self.sentence,
            earlier=self.run.next_archive(),
        )  # fmt: skip
        return UpdateHistory([*updates, own])


def _adopt(of: _Adopted, target: Run, correct: Correct) -> Discovery:
    """The whole result: all images of the run, by the better model. What people decided is entered by image and id
    (`correct` is for categories that have other ids)."""
    before = Discovery.read(of.run.folder)
    loaded, refined = load(of.beside.folder, str(of.source.device)), Discovery.read(of.beside.folder)
    table = images_of(of.run)
    features = _features(of, loaded, refined, table)
    named, known = of.categories(before, loaded.model.categories), len(loaded.model.known)
    members = _members(before, refined, loaded, named, table.paths, features)
    said = [replace(c, status="", piece=NOWHERE) if c.status == "junk" else c for c in of.source.said]
    target.copy_from(of.beside, ["model.safetensors", Reliability.FILE, "metrics.jsonl", "timing.json"])
    target.copy_from(of.run, [name for name in BEGINNING if not target.path(name).is_file()])
    target.copy_from(of.run, [Findings.FILE])
    target.write(CORRECTIONS, corrections_text(said))
    target.write("config.yaml", of.config().as_yaml())
    labels = [member.given_label for member in members]
    record_grown(target, replace(table, labels=labels, known_first=loaded.model.known), of.beside)
    target.write(FEATURES, save({"features": features}))
    rows = torch.from_numpy(loaded.embedding(features)).half()
    target.write(EMBEDDING, save({"embedding": rows}))
    write_described(Described(loaded.model.known, describe_protocol(target)), target)
    taken = max([before.corrections().next_id, *(number + 1 for number, _ in named)])
    of.history(before, taken).write(target)
    entries = [Category(number, name, place >= known, 0, 0.0, []) for place, (number, name) in enumerate(named)]
    result = Discovery(target.folder, categories_of(entries, members), members, table.skipped, taken)
    for (number, first), name in zip(named, of.source.names, strict=False):
        if first != name:
            result.rename(number, name)
    _keep_decisions(before, result)
    result.write()  # last
    return result


def _members(
    before: Discovery, refined: Discovery, loaded: LoadedRun, named: Sequence[tuple[int, str]], paths: Sequence[str],
    features: Tensor,
) -> list[Member]:  # fmt: skip
    """All images as the better model has them, in categories of these ids and names; what was junk, and so was not
    refined, where it would be."""
    since = {member.path: member.since for member in before.found_members}
    as_refined = {member.path: member for member in refined.found_members}
    others = [row for row, path in enumerate(paths) if path not in as_refined]
    found = {}
    if others:
        assignment = loaded.model.assign(features[others])
        figures = zip(assignment.category.tolist(), assignment.confidence.tolist(), unlike_of(assignment), strict=True)
        for row, (place, sure, far) in zip(others, figures, strict=True):
            is_new = place >= len(loaded.model.known)
            found[paths[row]] = Member(paths[row], None, "", is_new, round(sure, 4), far, place)
    made = []
    for path in paths:
        member = as_refined.get(path) or found[path]
        number, name = (POOL, POOL_NAME) if member.category_id == POOL else named[member.category_id]
        elsewhere = None if member.model_category_id is None else named[member.model_category_id][0]
        made.append(member._replace(category=name, category_id=number, model_category_id=elsewhere, since=since[path]))
    return made


def _features(of: _Adopted, loaded: LoadedRun, refined: Discovery, table: Table) -> Tensor:
    """(n, D) of all images of the run by the better model; what was junk, and so was not refined, is embedded now."""
    row_of = {member.path: row for row, member in enumerate(refined.found_members)}
    known = read_features(of.beside)
    features = torch.empty(len(table), known.shape[1])
    there = [row for row, path in enumerate(table.paths) if path in row_of]
    features[there] = known[[row_of[table.paths[row]] for row in there]]
    if len(there) < len(table):
        others = [row for row, path in enumerate(table.paths) if path not in row_of]
        embedded: Embedded = loaded.embed(table.rows(others))
        features[[others[row] for row in embedded.rows]] = embedded.features
    return features


def _keep_decisions(before: Discovery, after: Discovery) -> None:
    """What people decided, as edits of the new result, whose categories have the same ids."""
    now = {member.path: member.category_id for member in after.found_members}
    right: list[str] = []
    moved: dict[int, list[str]] = {}
    junk: list[str] = []
    for member in before.members:
        if member.status == "junk":
            junk.append(member.path)
        elif member.status and now[member.path] == member.category_id:
            right.append(member.path)
        elif member.status:
            moved.setdefault(member.category_id, []).append(member.path)
    enter_decisions(after, right, moved, junk)
