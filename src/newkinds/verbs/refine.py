"""The verb that lets a run learn from what people corrected, in a new run directory."""

import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from ..assigners.continued import ContinuedKMeans
from ..assigners.prototypes import PrototypeClassifier
from ..console import say
from ..data import load_table
from ..data.corrections import NOWHERE, corrected_names, corrections_text, read_corrections
from ..data.table import Table, readable
from ..discovery.categories import Discovery
from ..discovery.finished import LoadedRun, load, read_features
from ..discovery.kinds import with_more_names
from ..discovery.taught import changes, corrections_of, keep_decisions, require_corrections
from ..errors import NewkindsError
from ..files import make_folder, remove_leftovers
from ..ownership import remove_own_folder
from ..runs.config import Config, resolve
from ..runs.directory import CORRECTIONS
from ..runs.protocol import record_refined
from ..runs.run import Run
from ..runs.seen_images import earlier_images
from ..text import duration
from ..training.device import choose_device
from ..training.embedding import Embedded
from ..training.model import Model, build_model
from ..training.start import take_weights
from .continuing import Continuation
from .discover import seconds_of
from .folds import Judged, Taught, judge_whitening

RECORD = "refined.json"  # written last: what it is in is finished
TEN_MINUTES = 600.0
WHITENINGS = ("none", 0.5)  # besides that of the run
COPIED = ("metrics.jsonl", "timing.json")  # how the run was trained and embedded is how this one was


def refine(
    run: str | Path, out: str | Path | None = None, *, time: str | float | None = None, device: str = "auto",
) -> Discovery:  # fmt: skip
    """Let a run learn from what people corrected, and write the result as a run of its own; `run` is not changed.

    Accepted and moved images become labels, merged categories one, parts of a split one each; junk is
    left out. What was decided about an image stays, whatever the model says. `out` is `RUN-refined` by default.
    `time`: how long it may take ("10m", "2h", or seconds; ten minutes by default). To resume, make the same call again.

    >>> found = newkinds.Discovery.read("runs/photos")
    >>> found.merge(["new-07", "new-09"])
    >>> newkinds.refine("runs/photos").run
    PosixPath('runs/photos-refined')
    """
    refinement = Refinement(Run(run), seconds_of(TEN_MINUTES if time is None else time), device)
    target = refinement.target(None if out is None else Path(out))
    if target.path(RECORD).is_file() and target.read_json(RECORD)["finished"]:
        say(f"{target.folder} has learnt these corrections already")
        _tidy(target)  # killed, it may not have come to that
        return Discovery.read(target.folder)
    with target.claimed():
        return refinement.write(target)


def _tidy(target: Run) -> None:
    remove_own_folder(target.path("plan"))
    remove_leftovers(target.folder)


class Refinement:
    """One run, what people said about it, and what is made of that."""

    def __init__(self, source: Run, seconds: float, device: str = "auto") -> None:
        self.source, self.seconds, self.started = source, seconds, clock.monotonic()
        self.device = choose_device(device)
        self.before = Discovery.read(source.folder)
        require_corrections(self.before)
        loaded = load(source.folder, device)
        self.old, self.features = loaded.model, read_features(source)
        if len(self.features) != len(self.before.members):
            raise NewkindsError(
                f"{source.folder} has features of {len(self.features)} images, but assigned "
                f"{len(self.before.members)}: delete features.safetensors and run newkinds discover again."
            )
        embedding = partial(loaded.embedding, self.features)
        self.said, self.new_id = corrections_of(self.before, self.old.known, self._pieces(loaded), embedding)
        if source.path(CORRECTIONS).is_file():  # it was refined itself: what was junk before stays out
            self.said += [c for c in read_corrections(source.verified(CORRECTIONS)) if c.status == "junk"]
        self.names, self.known = corrected_names(self.said)

    def _pieces(self, loaded: LoadedRun) -> list[int]:
        """The cluster of each image: its category, or the one of several that a refined run has for that."""
        assigner = self.old.chosen_assigner
        if isinstance(assigner, ContinuedKMeans):
            rows = torch.from_numpy(loaded.embedding(self.features))
            pieces = (rows @ assigner.centres.cpu().T).argmax(dim=1).tolist()
        else:
            pieces = [member.category_id for member in self.before.found_members]
        # a labelled image that the model would put elsewhere lies in no cluster of its class
        found = zip(pieces, self.before.found_members, strict=True)
        return [piece if member.model_category_id is None else NOWHERE for piece, member in found]

    def target(self, out: Path | None) -> Run:
        """Where to write: a folder that is free, or that holds these corrections already."""
        folder, number = out or self.source.folder.with_name(f"{self.source.folder.resolve().name}-refined"), 2
        while not self._fits(Run(folder)):
            if out is not None:
                raise NewkindsError(
                    f"{folder} holds another run, or what {self.source.folder} learnt from other corrections than it "
                    "has now: choose another --out."
                )
            folder = self.source.folder.with_name(f"{self.source.folder.resolve().name}-refined-{number}")
            number += 1
        return Run(folder)

    def _fits(self, target: Run) -> bool:
        if target.folder.resolve() == self.source.folder.resolve():
            raise NewkindsError(f"{target.folder} is the run itself, which stays as it is: choose another --out.")
        if not target.path(CORRECTIONS).is_file():
            target.refuse_other_contents()
            return not target.path("config.yaml").is_file()  # else it is another run
        return read_corrections(target.verified(CORRECTIONS)) == self.said

    # -- learning ----------------------------------------------------------------------------------------------------

    def write(self, target: Run) -> Discovery:
        """Learn, and write all that a run has."""
        with self._stage(f"take over what was corrected in {self.source.folder}"):
            make_folder(target.folder)
            target.write(CORRECTIONS, corrections_text(self.said))
            config = self._config(target)
            table, features = self._images(config)
            taught = self._taught(table, config)
        with self._stage("find the categories again in the features of the run"):
            config, judged = self._judged(config, taught, features)
            model = self._begun(config, features, taught)
        best = max(judged, key=lambda one: one.score)
        more = Continuation(
            self.source, target, config, table, taught, lambda some: self._begun(config, features, some)
        )
        why_not = more.unfit(self.seconds - self._spent)
        with self._stage("write what was found"):
            found = self._written(target, config, model, table, features, taught, self.source)
            self._record(target, found, taught, judged, best, [], finished=bool(why_not))
        if why_not:
            if config.train.epochs:
                say(f"training is not continued: {why_not}")
            return found
        say(f"a first complete answer is in {target.folder}; Ctrl-C leaves it there, the same command goes on")
        with self._stage(f"continue the training, judged by hidden labels (about {duration(more.needs())})"):
            tried = more.trial(self._whitenings(), self.started + self.seconds)
            pays, why = (False, f"training was tried: {tried}") if isinstance(tried, str) else more.pays(tried, best)
        say(f"{why}: {'taken' if pays else 'the first answer stays'}")
        if pays and isinstance(tried, Judged):
            judged, best = [*judged, tried], tried
            with self._stage("train on all images"):
                trained = more.finish(tried)
                model = self._with_weights(trained.config, trained.run)
                self._find(model, trained.features, taught)
            with self._stage("write what was found"):
                found = self._written(target, trained.config, model, table, trained.features, taught, trained.run)
        self._record(target, found, taught, judged, best, [why], finished=True)
        _tidy(target)
        return found

    @property
    def _spent(self) -> float:
        return clock.monotonic() - self.started

    def _record(
        self, target: Run, found: Discovery, taught: Taught, judged: list[Judged], best: Judged, why: list[str],
        finished: bool,
    ) -> None:  # fmt: skip
        target.write_json(RECORD, {
            **changes(self.before, found, self.said, self.new_id),
            "learnt": [*self._sentences(taught, best), *why],
            "chosen": best.name,
            "judged": [{**asdict(one), "score": one.score} for one in judged],
            "seconds": round(self._spent, 1),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "finished": finished,
        })  # fmt: skip

    def _config(self, target: Run) -> Config:
        """The settings of the run, with other labels and another number of categories."""
        there = self.source.config().as_dict()
        by = {"corrections": str(target.path(CORRECTIONS).resolve()), "refines": str(self.source.folder.resolve())}
        kept = {section: values for section, values in there.items() if section not in ("assigner", "embedding")}
        own = {"assigner": {"name": "continued"}, "embedding": {"whiten": "none"}, "k": len(self.names)}
        return resolve(kept, {"data": {"name": there["data"]["name"], **by}}, own)

    def _images(self, config: Config) -> tuple[Table, Tensor]:
        """The images that are left, and their features (n, D): none is read again that is as it was."""
        earlier = earlier_images(self.source)
        table = readable(load_table(config.data), contents=True, earlier=earlier)
        row_of = {member.path: row for row, member in enumerate(self.before.members)}
        kept = {c.path for c in self.said if c.status != "junk"}
        if gone := sorted(kept - set(table.paths)):
            raise NewkindsError(
                f"{len(gone)} image(s) of {self.source.folder} cannot be read any more, such as {gone[0]}: restore "
                f"them, or make them junk (newkinds junk {self.source.folder} …)."
            )
        if added := [path for path in table.paths if path not in kept]:
            raise NewkindsError(
                f"{len(added)} image(s) were added since {self.source.folder} was started, such as {added[0]}: take "
                "them away, or look for categories in all of them by newkinds discover."
            )
        contents = zip(table.paths, table.contents or [], strict=True)
        if changed := [path for path, content in contents if path in earlier and earlier[path].content != content]:
            raise NewkindsError(
                f"{len(changed)} image(s) changed since {self.source.folder} was started, such as {changed[0]}: "
                "restore them, or begin again by newkinds discover."
            )
        return table, self.features[[row_of[path] for path in table.paths]]

    def _taught(self, table: Table, config: Config) -> Taught:
        said = {c.path: c for c in self.said}
        in_order = [said[path] for path in table.paths]
        return Taught(in_order, table.targets, self.known, len(self.names), config.train.seed)

    def _judged(self, config: Config, taught: Taught, features: Tensor) -> tuple[Config, list[Judged]]:
        """What whitening is worth by hidden labels, and the settings with the best."""
        model = self._with_weights(config, self.source)
        with torch.no_grad():
            rows = model.rows(features.to(self.device)).float().cpu()
        judged = judge_whitening(taught, rows, self._whitenings())
        best = max(judged, key=lambda one: one.score)
        return resolve(config.as_dict(), {"embedding": {"whiten": best.whiten}}), judged

    def _begun(self, config: Config, features: Tensor, taught: Taught) -> Model:
        """A model with the weights of the run that has found the categories again in its features.

        Prototypes, which no loss has learnt for these categories yet, begin with the means of their images.
        """
        model = self._with_weights(config, self.source)
        self._find(model, features, taught)
        own, labels = model.method.assigner(), torch.from_numpy(taught.labels).to(self.device)
        if isinstance(own, PrototypeClassifier) and own.categories == model.k:
            with torch.no_grad():
                rows = model.method.embedding(features.to(self.device))
                cluster = model.chosen_assigner(model.embedding(features.to(self.device))).argmax(dim=1)
                cluster = torch.where(labels >= 0, labels, cluster)
                own.prototypes.copy_(torch.zeros_like(own.prototypes).index_add_(0, cluster, rows.to(own.prototypes)))
        return model

    def _whitenings(self) -> list[float | str]:
        """What to compare; that of the run comes first, and so wins if all are equal."""
        own = self.source.config().embedding["whiten"]
        if own == "auto":
            own = next((w for w in WHITENINGS if w != "none"), "none")
        return list(dict.fromkeys([own, *WHITENINGS]))

    def _with_weights(self, config: Config, run: Run) -> Model:
        model = build_model(config, self.names[: self.known], len(self.names), load_weights=False)
        take_weights(model, run)
        return model.to(self.device).eval()

    def _find(self, model: Model, features: Tensor, taught: Taught) -> None:
        """Whitening, categories and confidence."""
        assert isinstance(model.assigner, ContinuedKMeans), "_config"
        model.assigner.begin_with(taught.pieces())
        labels = torch.from_numpy(taught.labels)
        model.find_categories(features, labels, taught.seed)
        model.calibrate(features, labels, taught.seed)

    # -- writing -----------------------------------------------------------------------------------------------------

    def _written(
        self, target: Run, config: Config, model: Model, table: Table, features: Tensor, taught: Taught, weights: Run
    ) -> Discovery:
        """All files of a run; `weights`: the run whose weights the model has."""
        remove_leftovers(target.folder)
        target.write("config.yaml", config.as_yaml())
        record_refined(target, config, table, weights, self.device)
        for name in (name for name in COPIED if weights.path(name).is_file()):
            target.write(name, weights.verified(name).read_bytes())
        target.write("features.safetensors", save({"features": features}))
        target.write_json("calibration.json", model.calibration.record)
        target.write("model.safetensors", model.as_safetensors())
        loaded = LoadedRun(target, model, with_more_names(self.names, model.categories))
        embedded = Embedded(features, list(range(len(table))), [])
        return loaded.show(table, embedded, correct=partial(keep_decisions, said=taught.said))

    def _sentences(self, taught: Taught, best: Judged) -> list[str]:
        """How well it can be trusted, in words."""
        said = [f"{best.name}: {100 * best.score:.1f} % of labels that are hidden for a moment are found again"]
        if best.decided is not None:
            n, right = int(taught.decided.sum()), sum(c.status == "accepted" for c in taught.said)
            said.append(
                f"of {n} images that you decided about, {100 * best.decided:.0f} % would be put there without being "
                f"told (before: {100 * right / n:.0f} %)"
            )
        return said

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        say(f"[{duration(self._spent)}] {name}")
        yield
