"""The verb for people with a folder of images: find the known and the new categories in them."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from typing_extensions import Unpack

from .. import checks
from ..assigners.base import CannotAssign
from ..assigners.resplit import can_judge
from ..console import say, warn
from ..data.loaded import LoadedDataset, named_data
from ..data.table import Table, require_labels
from ..discovery.categories import Discovery
from ..discovery.report.build import write_page
from ..errors import NewkindsError
from ..runs.changes import UpdateHistory
from ..runs.directory import IMAGES
from ..runs.protocol import image_changes
from ..runs.records import CandidateScore
from ..runs.run import FREE_TO_CHANGE, Run
from ..search.clock import seconds_of
from ..search.search import table_of_scores
from ..search.trainings import Collapsed, require_sound, training_called, watch_collapse, watched
from ..search.ways import NOTHING_TO_JUDGE_BY
from ..settings import flat
from ..text import duration
from ..training.loop import Diverged
from ..training.watching import Watcher
from .choices import Choices, layers_of
from .count import Number, decide_k, look_at_given, refuse_impossible, warn_of_number
from .layers import Layers, resolve_layers
from .plan import Plan, PlannedSearch, settings_of_choice
from .results import Correct, changes_text, finished_result, put_result
from .stages import HOUR, Looked, check_images, embed_once, look, require_time
from .train import load_images, train_on, with_k

# settings that say how to train: whoever names one has chosen the training
OF_TRAINING = ("method", "tuning", "organizer", "train")


def discover(
    data: str | Path | LoadedDataset | None, out: str | Path | None = None, *, time: str | float | None = None,
    page: bool = True, watchers: Sequence[Watcher] = (), **choices: Unpack[Choices],
) -> Discovery:  # fmt: skip
    """Find the known and new categories of partly labelled images, and write tables and a page.

    By default the pipeline is chosen by cross-validation on your labels: an answer from frozen features comes first,
    then trainings are tried and judged on labelled images alone, within `time` ("10m", "2h", or a number of seconds; an
    hour by default). Naming a method, an organizer, a recipe or how to train switches the choosing of the training off.
    `data` may also be a data set that you have loaded, of torchvision or Hugging Face: its images are then written to
    `OUT-images`. `out` is `newkinds-NAME` by default, with the name of the data. `page=False` writes no page if a
    training was named: a grid of many runs needs none. To resume, make the same call again; to look at images that were
    added since, too: names and corrections are kept, and so is the earlier result, in `earlier/`. `watchers` are told
    of every step and epoch of the training that gives the result (`newkinds.Watcher`), not of those tried before.

    >>> found = newkinds.discover("photos/", "runs/photos", time="10m")
    >>> len(found.new)
    """
    source = named_data(data, out)
    layers, run = layers_of(source, choices), Run(default_out(source) if out is None else out)
    run.refuse_other_contents()
    seconds = seconds_of(time, HOUR)
    with leave_answer(run):
        if names_training(layers):
            return _discover_as_told(layers, run, page, watchers)
        return _discover_by_search(layers, run, seconds, watchers)


def _discover_as_told(layers: Layers, run: Run, page: bool, watchers: Sequence[Watcher]) -> Discovery:
    """The method, the recipe or the training was named."""
    config = resolve_layers(layers, run)
    table = load_images(config, run)
    if config.train.epochs:
        require_labels(table)
    changed = _what_changed(run, table)
    if not changed and _is_updated(run):
        return finished_result(run, page)
    if config.k is None and table.categories is None:
        config = replace(config, k="auto")
    config, estimate = with_k(config, table, None if changed else run)
    if run.is_answered and not changed:
        run.refuse_other_settings(config)
        say(f"{run.folder} is finished already")
        return finished_result(run, page)
    if not changed:
        run.refuse_other_settings(config)

    def write(target: Run, correct: Correct) -> Discovery:
        trained = train_on(table, config, target, estimate, watchers=watchers)
        return trained.show(table, page=False, correct=correct)

    return put_result(run, config, write, page=page)


def _discover_by_search(layers: Layers, run: Run, seconds: float, watchers: Sequence[Watcher]) -> Discovery:
    """The shipped candidates are compared, and the best gives the result."""
    plan = Plan(run, layers, seconds)
    config = resolve_layers(plan.layers, run)
    table = load_images(config, run)
    changed = _what_changed(run, table)
    if not changed and _is_updated(run):
        return finished_result(run)
    plan.take_images(table)
    if plan.is_finished() and run.is_answered:
        say(f"{run.folder} is finished already: {plan.earlier.chosen if plan.earlier else ''}")
        return finished_result(run)
    with plan.clock.stage("look at the data"):
        refuse_impossible(config.k, table)
        looked = look(table, config, plan.layers, plan.clock.seconds, can_judge(table.targets))
        require_time(looked, plan.clock.seconds)  # a first answer must come, however long looking took
    announce(looked, plan)
    findings, number, planned = prepare_search(plan, looked)
    first = _first_answer(planned, number, findings)
    discovered, number = _better_answer(planned, number, findings, first)
    with plan.clock.stage("compare trainings"):
        choice = planned.compare_trainings()
    say(table_of_scores(planned.search.scores, choice.candidate.name))
    say(f"{choice.candidate.name}: {choice.why}")
    candidate = choice.candidate
    while candidate.training:
        try:
            discovered = _train_chosen(planned, candidate, number, findings, watchers)
            break
        except (Collapsed, Diverged) as error:
            candidate = planned.reject(candidate, str(error)).candidate
            say(f"{candidate.name}: {planned.choice.why}")
    else:
        discovered = _frozen_answer(planned, number, findings, discovered)
    planned.finish()
    run.drop_next()
    write_page(run)  # what was compared is on it
    if first is not None and (changed := changes_text(first, discovered)):
        say(changed)
    if late := plan.clock.overrun():
        say(late)
    return discovered


def prepare_search(plan: Plan, looked: Looked) -> tuple[list[checks.CheckResult], Number, PlannedSearch]:
    """Embed every image once, look for faults, and count the categories."""
    with plan.clock.stage("embed every image once", looked.size.seconds):
        images = embed_once(looked)
    with plan.clock.stage("check the data"):
        findings = check_images(images)
    with plan.clock.stage("count the categories"):
        asked = looked.config.k
        if asked is None and looked.table.categories is None:
            asked = "auto"
        known_before = plan.run if not _what_changed(plan.run, looked.table, silent=True) else None
        number = decide_k(asked, looked.table, known_before, lambda: images.rows)
        seen = None if plan.earlier is None else plan.earlier.number_seen
        if seen is None and isinstance(asked, int):
            seen = look_at_given(asked, images.rows, looked.table, plan.clock.seconds)
        if seen is not None:
            warn_of_number(seen)
    return findings, number, plan.begin(images, number.k, seen)


def compare_frozen(planned: PlannedSearch) -> None:
    """What can be had without a training: from the features that are there, and from larger images."""
    with planned.clock.stage("compare answers from frozen features"):
        planned.compare_frozen()
    with planned.clock.stage("look closer"):
        choice = planned.look_closer()
    say(f"{choice.candidate.name}: {choice.why}")


def _first_answer(planned: PlannedSearch, number: Number, findings: list[checks.CheckResult]) -> Discovery | None:
    """A complete run from frozen features in the usual way, unless an earlier command has left one of these images;
    None if that way cannot find categories in them."""
    run = planned.plan.run
    if run.is_answered and planned.plan.earlier is not None:
        planned.keep()
        return finished_result(run)
    with planned.clock.stage("first answer"):
        planned.keep()  # first: what is in the folder is then known to be planned
        try:
            found = _put_frozen(planned, number, findings, keep_earlier=True)
        except CannotAssign as error:
            planned.search.reject(planned.choice.candidate, str(error))
            return None
    say(f"a first complete answer is in {run.folder} after {duration(planned.clock.spent)}")
    return found


def _better_answer(
    planned: PlannedSearch, number: Number, findings: list[checks.CheckResult], found: Discovery | None
) -> tuple[Discovery | None, Number]:
    """The best without a training, and how many categories there are by it: what was `found` before, if that is it."""
    first = planned.looked.size
    compare_frozen(planned)
    if number.estimate is not None and planned.looked.size != first:
        number = decide_k("auto", planned.looked.table, None, lambda: planned.images.rows)
    if found is not None and planned.search.best(trains=True) is not None:
        return found, number  # an earlier command has compared trainings: what is there may be the result of one
    return _frozen_answer(planned, number, findings, found), number


def _frozen_answer(
    planned: PlannedSearch, number: Number, findings: list[checks.CheckResult], found: Discovery | None
) -> Discovery:
    """The run of the chosen way in frozen features: what was `found`, if that is it. A way that cannot find categories
    in all images is rejected, and the next best is taken."""
    while found is None or not planned.plan.run.has_settings(planned.config(number.k)):
        with planned.clock.stage("a better answer"):
            try:
                return _put_frozen(planned, number, findings, keep_earlier=found is None)
            except CannotAssign as error:
                choice = planned.reject(planned.choice.candidate, str(error))
                say(f"{choice.candidate.name}: {choice.why}")
    return found


def _put_frozen(
    planned: PlannedSearch, number: Number, findings: list[checks.CheckResult], keep_earlier: bool
) -> Discovery:
    """The chosen way in frozen features becomes the result."""
    looked, images = planned.looked, planned.images
    config = planned.config(number.k)

    def write(target: Run, correct: Correct) -> Discovery:
        trained = train_on(
            looked.table, config, target, number.estimate, cache=images.cache, embedded=images.embedded,
            evidence=planned.evidence.of(planned.choice.candidate.name),
        )  # fmt: skip
        checks.write_findings(findings, target)
        return trained.show(looked.table, page=False, correct=correct)

    return put_result(planned.plan.run, config, write, keep_earlier=keep_earlier)


def _train_chosen(
    planned: PlannedSearch, chosen: CandidateScore, number: Number, findings: list[checks.CheckResult],
    watchers: Sequence[Watcher],
) -> Discovery:  # fmt: skip
    """What was chosen, trained on all images, becomes the result in the place of the first answer."""
    run, table, material = planned.plan.run, planned.looked.table, planned.material
    training = training_called(chosen.training)
    cache = material.cache_for(training)
    config = planned.looked.config_of(watched(settings_of_choice(chosen, training, len(table))), number.k)
    with planned.clock.stage("train what was chosen"):

        def write(target: Run, correct: Correct) -> Discovery:
            watch, evidence = watch_collapse(material, table), planned.evidence.of(chosen.name)
            trained = train_on(
                table, config, target, number.estimate, watch, cache, evidence=evidence, watchers=watchers
            )
            embedded = trained.embed(table)
            require_sound(material, table, trained.loaded.model, embedded.features)
            checks.write_findings(findings, target)
            return trained.loaded.show(table, embedded, page=False, correct=correct)

        return put_result(run, config, write, keep_earlier=False, page=False)


def announce(looked: Looked, plan: Plan) -> None:
    """What will be done, before anything long begins."""
    n, backbone, seconds = len(looked.table), looked.config.backbone, plan.clock.seconds
    if looked.table.vectors is not None:
        kind, first = "vectors", f"read every vector once: {backbone['width']} numbers each"
    else:
        size = looked.size
        cached = "" if size.uncached == n else f", {n - size.uncached:,} of them are cached"
        needs = duration(size.seconds)
        kind, first = "images", f"embed every image once by {backbone['name']}{size}: about {needs}{cached}"
    say(
        f"plan for {n:,} {kind} in {duration(seconds)} (--time):\n"
        f"  1. {first}\n"
        f"  2. a first complete answer from these features\n"
        f"  3. {_announce_trainings(looked.table)}\n"
        f"From 2. on, Ctrl-C leaves the best answer so far in {plan.run.folder}; to continue, rerun the same command."
    )


def _announce_trainings(table: Table) -> str:
    if not can_judge(table.targets):
        return f"no training: {NOTHING_TO_JUDGE_BY}"
    return "larger images and trainings, judged on labelled images alone, as long as time is left and they pay"


@contextmanager
def leave_answer(run: Run) -> Iterator[None]:
    """Whoever presses Ctrl-C is told where the answer is, if there is one."""
    try:
        yield
    except KeyboardInterrupt:
        if run.is_answered:
            say(f"the best answer so far is in {run.folder} (newkinds report {run.folder})")
        raise


def _what_changed(run: Run, table: Table, silent: bool = False) -> str:
    """How the images differ from those of the result that is there, which is said; empty if they do not."""
    if not run.path(IMAGES).is_file():
        return ""
    differing = image_changes(run, table).sentence()
    if differing and not silent:
        corrected = run.is_answered and Discovery.read(run.folder).revision > 0
        carried = "names and corrections are carried over, and " if corrected else ""
        kept = f"; {carried}the earlier result is kept" if run.is_answered else ""
        update = (
            f" To keep the categories and their ids instead: newkinds update {run.folder}" if run.is_answered else ""
        )
        warn(
            f"since the result in {run.folder} was found, {differing}. Categories are looked for in all images as they "
            f"are now{kept}.{update}"
        )
    return differing


def _is_updated(run: Run) -> bool:
    """Whether images came to a result since it was discovered, so that it is no longer what this command would find;
    which is said."""
    if not run.is_answered or (last := UpdateHistory.of(run).last) is None:
        return False
    say(
        f"{run.folder} is finished already, with update {last.number} (newkinds update {run.folder} --history). The "
        "search does not go on after an update, which keeps categories as they are. For a better model: newkinds "
        f"update {run.folder} --time 10m. To look for all categories anew, discover into another folder (--out)."
    )
    return True


def names_training(layers: Layers) -> bool:
    """Whether somebody has said how to train."""
    named = {name for layer in layers for name in flat(layer)}
    free = {*FREE_TO_CHANGE, "train.seed", "train.precision", "train.tf32", "train.compile", "train.deterministic"}
    return any(name.partition(".")[0] in OF_TRAINING and name not in free for name in named)


def default_out(data: str | Path | None, what: str = "") -> Path:
    """Where a run goes if nobody says: newkinds-NAME, here."""
    if data is None:
        raise NewkindsError(
            "say which images: a folder, a CSV file or the name of a data set. "
            "If a recipe names them, say where to write instead: --out RUN."
        )
    path = Path(data)
    stem = path.resolve().stem if path.exists() else str(data)
    name = re.sub(r"[^\w.-]+", "-", stem).strip("-.")
    return Path("-".join(filter(None, ["newkinds", what, name])))
