"""The plan of `newkinds discover`: look, embed once, answer from frozen features, train only as long as it pays."""

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .. import checks
from ..cluster.count import COUNTERS, Count
from ..cluster.metrics import Accuracy
from ..console import say
from ..data.table import Table
from ..discovery.categories import Discovery
from ..discovery.finished import LoadedRun, load
from ..encoders.backbones import TINY, VECTORS, Backbone, build_backbone
from ..encoders.encoder import frozen_encoder
from ..errors import NewkindsError
from ..files import make_folder, remove_leftovers
from ..ownership import remove_own_folder
from ..runs.config import OWN, Config, resolve
from ..runs.directory import K_AUTO
from ..runs.protocol import require_same_images
from ..runs.records import read_count
from ..runs.run import Run
from ..settings import flat
from ..text import duration
from ..training.cache import TokenCache, cached_tokens
from ..training.device import choose_device
from ..training.embedding import embed
from ..training.loop import Evaluator
from ..training.model import Model
from ..training.store import CacheUnavailable
from .assign import COPIED, STALE
from .candidates import (
    FROZEN,
    JUDGED,
    LOOKS,
    RECIPES,
    RULE,
    TRIALS,
    Candidate,
    Recipe,
    Way,
    accuracy_on,
    choose,
    choose_frozen,
    frozen_candidates,
    judge_frozen,
    splits_of,
    table_of,
    table_text,
    ways_after,
)
from .count import COUNT_BY
from .settled import Layers, settled, without
from .train import cache_of, category_count, images_of, train_on

FILE = "plan.json"
HOUR = 3600.0
SIZES = (112, 168, 224)  # px, of which the largest is taken whose pass over all images fits into its share of the time
SHARE_OF_PASS = 0.15  # of the time, for one pass
ENLARGED = 4  # an image is not shown to the backbone more than so many times larger than it is
MEASURED = 8  # images, by which the time of a pass is measured
MARGIN = 0.1  # by which a training may know fewer labels than frozen features: these were not asked to forget any
STEP_SECONDS = 0.03  # of one step on class tokens, until it was measured


class Collapsed(NewkindsError):
    """A training that lost what the frozen features knew."""


class Plan:
    """The stages of one plan. What was judged is kept in `plan.json`, so that the same command continues."""

    def __init__(self, layers: Layers, run: Run, seconds: float = HOUR) -> None:
        # whether to whiten is chosen anyway; what follows can only be told a shrinkage
        self.layers = [without(layer, "embedding", "whiten", "auto") for layer in layers]
        self.run, self.seconds, self.started = run, seconds, time.monotonic()
        self.stages: list[dict[str, Any]] = []
        self.candidates: list[Candidate] = []
        self.chosen, self.why, self.earlier = "", "", 0.0
        self.step_seconds, self.replacing = STEP_SECONDS, False
        self.shown = False  # whether this command has written the first answer
        self._read()

    # -- stages ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Stage a: the images, the backbone, and how much the time allows."""
        with self._stage("look at the data"):
            config = settled(self.layers, self.run)
            self.table = images_of(config, self.run)
            if self.run.path("images.csv").is_file():
                require_same_images(self.run, self.table)
            self.device = choose_device(config.train.device)
            size = config.backbone["image_size"] or self._image_size(config)
            self.base: Layers = [{"backbone": {**_chosen_backbone(config), "image_size": size}}]
            self.config = resolve(*self.base, *self.layers)
        self._announce()

    def embed(self) -> None:
        """Stage b: every image once, and what may be wrong with the data."""
        with self._stage("embed every image once"):
            encoder = frozen_encoder(**self.config.backbone)
            self.backbone = encoder.backbone
            self.cache = self._class_tokens(self.config, self.backbone)
            found = embed(encoder, self.table, self.device, workers=self.config.train.workers, cache=self.cache)
            if found.skipped:
                raise NewkindsError(f"{found.skipped[0].path} can no longer be read: rerun the same command.")
            self.rows = F.normalize(found.features, dim=1)  # (n, D)
        with self._stage("check the data"):
            self.findings = checks.run_checks(self.table, self.rows)
            for finding in self.findings:
                if finding.found.sentence:
                    say(f"{finding.check}: {finding.found.sentence}")

    def judge_frozen(self) -> None:
        """Stage c, first half: how many categories, and the best assigner of frozen features."""
        with self._stage("count the categories"):
            self.k, self.counted = self._count()
        self.splits = splits_of(self.table.targets, self.config.train.seed)
        with self._stage("compare answers from frozen features"):
            wanted = [self._allowed(candidate) for candidate in frozen_candidates()]
            for candidate in {candidate.name: candidate for candidate in wanted}.values():
                if self._state_of(candidate.name) != JUDGED:
                    self._keep(judge_frozen(candidate, self.rows, self.splits))
        self.frozen, self.why = choose_frozen([c for c in self.candidates if not c.trains])
        self.chosen = self.frozen.name
        say(f"{self.frozen.name}: {self.why}")

    def answer(self) -> None:
        """Stage c, second half: a complete run from frozen features, unless an earlier command has left one."""
        wanted = ("model.safetensors", "assignments.csv", FILE)
        if self.replacing or all(self.run.path(name).is_file() for name in wanted):
            return
        with self._stage("first answer"):
            self.keep()  # first: what is in the folder is then known to be planned
            config = self._config(self.frozen.settings)
            loaded = train_on(self.table, config, self.run, self.counted, cache=self.cache).loaded
            self._shown(loaded)
            self.shown = True
        say(f"a first complete answer is in {self.run.folder} after {duration(self.spent)}")

    def keep(self) -> None:
        """From here on what is judged is written down: killed, the same command continues."""
        make_folder(self.run.folder)
        self._write()

    def judge_trained(self) -> None:
        """Stage d: training, judged on labelled images split again."""
        if not self.splits:
            return
        with self._stage("compare trainings"):
            for recipe in RECIPES:
                ways = {f"{recipe.name}, {way}": way for way in self._ways_after()}
                if all(self._state_of(name) == JUDGED for name in ways):
                    continue
                needs = self._needs(recipe)
                left = max(self.seconds - self.spent, 0)
                if (reason := self._unfit(recipe)) or needs > left:
                    reason = reason or f"needs about {duration(needs)}, {duration(left)} are left"
                    self._keep(Candidate(recipe.name, recipe.settings, True, state=f"not tried: {reason}"))
                    continue
                say(f"trying: {recipe.name} (about {duration(needs)})")
                self.candidates = [c for c in self.candidates if c.name != recipe.name]  # there was no time before
                for candidate in self._trial(recipe, ways):
                    self._keep(candidate)
            best, self.why = choose(self.candidates)
            self.chosen = best.name
        say(table_text(self.candidates, self.chosen))
        say(f"{self.chosen}: {self.why}")

    def finish(self) -> Discovery:
        """Stage e: what was chosen becomes the result, in the place of the first answer."""
        from ..discovery.report.build import write_page  # jinja2 is needed here only

        chosen = self._chosen()
        if not chosen.trains:
            self._write()
            if not self.shown:
                return self._shown(load(self.run.folder, self.config.train.device))
            write_page(self.run)  # what was compared since is all that is new
            return Discovery.read(self.run.folder)
        with self._stage("train what was chosen"):
            recipe = self._recipe_of(chosen)
            settings = self._settings_of(chosen)
            inner = Run(self.run.path("plan") / "chosen")
            cache = self.cache if recipe.passes == 0 else None
            try:
                loaded, cache, _ = train_on(
                    self.table, self._config(settings), inner, self.counted, self._watch(self.table), cache
                )
            except Collapsed as error:
                self._keep(replace(chosen, state=f"stopped: {error}", scores=[]))
                self.chosen, self.why = self.frozen.name, f"{chosen.name} collapsed on all images, so this stays"
                return self.finish()
        self.replacing = True  # killed from here on, the same command puts the result in its place once more
        self._write()
        with _no_interrupts():
            for name in STALE:
                self.run.remove(name)
            for name in ("calibration.json", "model.safetensors", "config.yaml", *COPIED):
                if inner.path(name).is_file():
                    self.run.write(name, inner.verified(name).read_bytes())
            self.run.remove("categories.json")
            found = self._shown(LoadedRun(self.run, loaded.model), cache)
            self.replacing = False
            self._write()
            remove_own_folder(inner.folder.parent)
        return found

    # -- parts -----------------------------------------------------------------------------------------------------

    def _trial(self, recipe: Recipe, ways: dict[str, Way]) -> list[Candidate]:
        """Train on each split, and judge every way to find categories in the trained features."""
        found: dict[str, list[Accuracy]] = {name: [] for name in ways}
        started, state, tried = time.monotonic(), "", 0
        for number, split in enumerate(self.splits[:TRIALS]):
            table = table_of(self.table, split)
            run = Run(self.run.path("plan") / f"trial-{_slug(recipe.name)}-{number}")
            cache = self.cache if recipe.passes == 0 else None
            config = replace(self._config(recipe.layer(len(table))), k=split.categories)
            try:
                loaded, cache, _ = train_on(table, config, run, watch=self._watch(table), cache=cache)
            except NewkindsError as error:
                state = f"stopped: {error}"
                break
            tried = number + 1
            model = loaded.model
            features = embed(model.encoder, table, model.device, cache=cache).features
            with torch.inference_mode():
                rows = model.embedding(features).cpu()
            for name, way in ways.items():
                if way.assigner == OWN:
                    found[name].append(accuracy_on(split, model.assign(features).category.cpu().numpy()))
                else:
                    found[name].append(way.on(rows, split))
            per_split = (time.monotonic() - started) / tried
            needs = per_split * (min(TRIALS, len(self.splits)) - tried) + self._final_needs(recipe, per_split)
            if self.spent + needs > self.seconds and tried < min(TRIALS, len(self.splits)):
                state = f"stopped: it turned out to need {duration(needs)} more, too much for the time that is left"
                break
        remove_own_folder(self.run.path("plan"))
        seconds = time.monotonic() - started
        if not recipe.blocks and tried:
            self.step_seconds = seconds / (recipe.steps * tried)
        made = []
        for name, way in ways.items():
            candidate = Candidate(name, {**recipe.settings, **way.settings}, True)
            made.append(candidate.judged(found[name], seconds) if not state else replace(candidate, state=state))
        return made

    def _watch(self, table: Table) -> Evaluator:
        """Ends a training that has collapsed: most categories empty, or labels that frozen features knew forgotten."""
        targets = table.targets
        labelled = targets >= 0
        row_of = {path: row for row, path in enumerate(self.table.paths)}
        frozen = self.rows[[row_of[path] for path in table.paths]]
        centres = torch.stack([frozen[targets == known].mean(0) for known in np.unique(targets[labelled])])
        at_first = (frozen[labelled] @ F.normalize(centres, dim=1).T).argmax(1).numpy()
        known_before = float((np.unique(targets[labelled])[at_first] == targets[labelled]).mean())

        def look(model: Model, features: torch.Tensor) -> dict[str, float | None]:
            category = model.assign(features).category.cpu().numpy()
            filled = len(np.unique(category)) / model.k
            knows = float((category[labelled] == targets[labelled]).mean())
            looks.append(knows)
            if len(looks) <= LOOKS // 2:  # it has hardly begun
                return {"agreement": knows, "filled": filled}
            if filled < 0.5:
                raise Collapsed(f"it collapsed: {1 - filled:.0%} of the categories are empty")
            if knows < known_before - MARGIN:
                raise Collapsed(f"it agrees with {knows:.0%} of the labels, frozen features with {known_before:.0%}")
            return {"agreement": knows, "filled": filled}

        looks: list[float] = []
        return look

    def _is_cached(self, config: Config, size: int) -> bool:
        """Whether an earlier command has embedded all images at this size."""
        backbone = build_backbone(**{**config.backbone, "train_blocks": 0, "image_size": size})
        return self._class_tokens(config, backbone, build=False) is not None

    def _class_tokens(self, config: Config, backbone: Backbone, build: bool = True) -> TokenCache | None:
        if self.table.vectors is not None:
            return None  # they are what would be cached
        try:
            return cached_tokens(
                backbone, self.table, 0, about=cache_of(config), precision="float32", device=self.device,
                workers=config.train.workers, patches=False, build=build,
            )  # fmt: skip
        except CacheUnavailable as error:
            say(f"{error} Nothing is trained without it.")
            return None

    def _count(self) -> tuple[int, Count | None]:
        k = self.config.k
        if k == "auto" or (k is None and self.table.categories is None):
            if self.run.path(f"{K_AUTO}.json").is_file():
                counted = read_count(self.run, K_AUTO)
            else:
                counted = COUNTERS[COUNT_BY](self.rows, self.table.targets)
            say(f"{counted.answer} categories, {counted.new} of them new")
            return category_count(max(counted.answer, len(self.table.known)), self.table), counted
        return category_count(k, self.table), None

    def _config(self, settings: dict[str, Any]) -> Config:
        """The settings of a candidate; what the user named wins."""
        return replace(resolve(*self.base, settings, *self.layers), k=self.k)

    def _allowed(self, candidate: Candidate) -> Candidate:
        """The candidate with what the user named."""
        config = self._config(candidate.settings)
        way = Way(config.assigner["name"], config.embedding["whiten"])
        return replace(candidate, name=f"{FROZEN}, {way}", settings={**candidate.settings, **way.settings})

    def _ways_after(self) -> list[Way]:
        """In trained features; what the user named wins."""
        named = self._config({})
        ways = ways_after(self.frozen)
        if named.assigner["name"] != OWN:
            ways = [replace(way, assigner=named.assigner["name"]) for way in ways]
        if named.embedding["whiten"] != "none":
            ways = [replace(way, whiten=named.embedding["whiten"]) for way in ways if way.assigner != OWN]
        return list(dict.fromkeys(ways))

    def _unfit(self, recipe: Recipe) -> str:
        if self.table.vectors is not None:
            return "ready-made vectors have no pixels" if recipe.passes else ""
        if recipe.passes == 0 and self.cache is None:
            return "there is no place for a cache of class tokens"
        if recipe.passes and not self.backbone.is_plain_vit:
            return "the blocks of this backbone cannot be cached"
        return ""

    def _needs(self, recipe: Recipe) -> float:
        """Seconds that a recipe takes: its trials, and the training on all images."""
        n, labelled = len(self.table), len(self.splits[0].rows)
        views = recipe.passes * n
        blocks = recipe.blocks * (TRIALS * labelled * recipe.epochs(labelled) + n * recipe.epochs(n))
        return (TRIALS + 1) * recipe.steps * self.step_seconds + self.image_seconds * (views + blocks)

    def _final_needs(self, recipe: Recipe, per_split: float) -> float:
        """Seconds that the training on all images takes, by what a trial took: as many steps, with more views."""
        n, labelled = len(self.table), len(self.splits[0].rows)
        return per_split + recipe.passes * self.image_seconds * (n - labelled)

    def _image_size(self, config: Config) -> int | None:
        """The largest size whose pass fits into its share of the time; None: the backbone's own."""
        if config.backbone["name"] == VECTORS:
            self.image_seconds = 0.0
        if config.backbone["name"] in (TINY, VECTORS):
            return None
        backbone = build_backbone(**{**config.backbone, "train_blocks": 0})
        patch = getattr(getattr(backbone.network, "patch_embed", None), "patch_size", (1,))[0]
        largest = backbone.preprocessing.size
        per_image = _seconds_per_image(backbone, self.device)
        facts = [seen.facts for seen in self.table.seen or [] if seen.facts is not None]
        sides = [min(fact.width, fact.height) for fact in facts] or [largest]
        useful = max(SIZES[0], ENLARGED * float(np.median(sides)))
        sizes = [size - size % patch for size in SIZES if size <= min(largest, useful)] or [largest]
        if not backbone.is_plain_vit:
            sizes = [largest]
        seconds = {size: per_image * (size / largest) ** 2 * len(self.table) for size in sizes}
        fitting = [size for size in sizes if seconds[size] <= SHARE_OF_PASS * self.seconds]
        size = max(fitting, default=sizes[0])
        if seconds[size] > 0.9 * self.seconds and not self._is_cached(config, size):
            raise NewkindsError(
                f"one pass over {len(self.table):,} images takes about {duration(seconds[size])} on this machine, and "
                f"--time {duration(self.seconds)} is too little for it: give at least --time "
                f"{duration(1.5 * seconds[size])}, or a smaller backbone."
            )
        self.image_seconds = seconds[size] / len(self.table)
        return size

    def _announce(self) -> None:
        """The plan, before anything long begins."""
        n, backbone = len(self.table), self.config.backbone
        if not hasattr(self, "image_seconds"):
            self.image_seconds = _seconds_per_image(build_backbone(**{**backbone, "train_blocks": 0}), self.device)
        size = f" at {backbone['image_size']} px" if backbone["image_size"] else ""
        first = f"embed every image once by {backbone['name']}{size}: about {duration(n * self.image_seconds)}"
        if self.table.vectors is not None:
            first = f"read every vector once: {backbone['width']} numbers each"
        say(
            f"plan for {n:,} {'images' if self.table.vectors is None else 'vectors'} in {duration(self.seconds)} "
            f"(--time):\n"
            f"  1. {first}\n"
            f"  2. a first complete answer from these features\n"
            f"  3. trainings, judged on labelled images alone, as long as time is left and they pay\n"
            f"Ctrl-C leaves the best answer so far in {self.run.folder}; to continue, rerun the same command."
        )

    # -- keeping ---------------------------------------------------------------------------------------------------

    @property
    def spent(self) -> float:
        return self.earlier + time.monotonic() - self.started

    def _shown(self, loaded: LoadedRun, cache: TokenCache | None = None) -> Discovery:
        checks.write_findings(self.findings, self.run)
        return loaded.discover(self.table, cache or self.cache)

    def _state_of(self, name: str) -> str:
        return next((c.state for c in self.candidates if c.name == name), "")

    def _keep(self, candidate: Candidate) -> None:
        """Replace what was known of a candidate, and write that down if there is something to continue from."""
        known = [c.name for c in self.candidates]
        if candidate.name in known:
            self.candidates[known.index(candidate.name)] = candidate
        else:
            self.candidates.append(candidate)
        if self.run.path(FILE).is_file():
            self._write()

    def recipe(self) -> dict[str, Any]:
        """What was chosen, as settings for all images."""
        chosen = self._chosen()
        settings = self._settings_of(chosen) if chosen.trains else chosen.settings
        if chosen.trains:
            settings["train"] = {name: value for name, value in settings["train"].items() if name != "eval_every"}
        backbone = {**self.base[0]["backbone"], **settings.get("backbone", {})}
        weights = self.config.backbone["weights"]
        return {**settings, "backbone": {**backbone, **({"weights": weights} if weights else {})}, "k": self.k}

    def _chosen(self) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.name == self.chosen)

    def _settings_of(self, chosen: Candidate) -> dict[str, Any]:
        """How a candidate that trains is trained on all images."""
        return {**self._recipe_of(chosen).layer(len(self.table)), **Way.of(chosen.settings).settings}

    def _recipe_of(self, chosen: Candidate) -> Recipe:
        return next(recipe for recipe in RECIPES if chosen.settings["method"] == recipe.settings["method"])

    def record(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen, "why": self.why, "rule": RULE, "splits": len(self.splits),
            "budget_seconds": self.seconds,
            "spent_seconds": round(self.spent, 1), "step_seconds": self.step_seconds, "asked": self._asked(),
            "replacing": self.replacing,
            "candidates": [candidate.record() for candidate in self.candidates], "stages": self.stages,
        }  # fmt: skip

    def _write(self) -> None:
        self.run.write_json(FILE, self.record())

    def _read(self) -> None:
        """What an earlier command has judged already, if it asked for the same."""
        if not self.run.path(FILE).is_file():
            if self.run.path("config.yaml").is_file():
                raise NewkindsError(
                    f"{self.run.folder} holds a run that was not planned: choose another --out, or name its method."
                )
            return
        record = self.run.read_json(FILE)
        for name in sorted({*self._asked(), *record["asked"]}):
            if self._asked().get(name) != record["asked"].get(name):
                raise NewkindsError(
                    f"{self.run.folder} holds a plan with other settings ({name}): choose another --out, or delete it."
                )
        self.candidates = [Candidate.of_record(entry) for entry in record["candidates"]]
        self.step_seconds, self.earlier = float(record["step_seconds"]), float(record["spent_seconds"])
        self.stages, self.replacing = record["stages"], bool(record["replacing"])
        with self.run.claimed():
            remove_leftovers(self.run.folder)
        say(f"continuing the plan in {self.run.folder}")

    def _asked(self) -> dict[str, str]:
        """What the user named, as text: a run of the same command asks for the same."""
        named = {name: value for layer in self.layers for name, value in flat(layer).items()}
        return {name: str(value) for name, value in named.items() if name not in ("train.device", "train.workers")}

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        say(f"[{duration(self.spent)}] {name}")
        started = time.monotonic()
        yield
        seconds = round(time.monotonic() - started, 2)
        self.stages.append({"name": name, "seconds": seconds, "at": round(self.spent, 2)})


def _chosen_backbone(config: Config) -> dict[str, Any]:
    """What decides the backbone: its name, and the width of ready-made vectors."""
    return {name: config.backbone[name] for name in ("name", "width") if config.backbone[name] is not None}


def _seconds_per_image(backbone: Backbone, device: torch.device) -> float:
    """Of one pass, measured by a few images of noise."""
    size = backbone.preprocessing.size
    images = torch.randn(MEASURED, 3, size, size, device=device, generator=torch.Generator(device).manual_seed(0))
    backbone.to(device)
    with torch.inference_mode():
        backbone(images, patches=False)  # the first time memory is allotted
        started = time.perf_counter()
        backbone(images, patches=False).cls.cpu()
    return (time.perf_counter() - started) / MEASURED


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Files that belong together are written together: Ctrl-C waits for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            raise KeyboardInterrupt


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
