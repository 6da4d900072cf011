"""The verb: diagnose finished runs, and write what was found beside them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...console import say, warn
from ...data.loader import seed_for
from ...discovery.finished import images_of, load, read_features
from ...encoders.organizers import ORGANIZERS
from ...errors import NewkindsError
from ...files import checksum, json_text, make_folder
from ...ownership import OwnFiles, write_output
from ...runs.protocol import set_otherwise
from ...runs.run import Run
from ...runs.seen_images import earlier_images
from ...training.embedding import details_of
from ..judge import known_accuracy
from . import several
from .diagnosis_figures import entropy_and_accuracy, pictures
from .observation import Observation, of_features
from .result import ABOUT, Diagnosis, diagnosis_text

RESULT, TABLES = "diagnose.json", "diagnose.md"
SAMPLE = 1000  # images, by default
BATCH = 32  # images at once: their tokens are taken in float64
NEEDS_CPF = (
    "there is no CPF in this run: its fields, codebook, A_prior, A_data, α, γ and primitives can be measured in a run "
    "with --organizer cpf only."
)


@dataclass(frozen=True)
class Diagnosed:
    """What was measured in each run, and all of it as text."""

    runs: list[Diagnosis]
    text: str


def diagnose_runs(
    runs: str | Path | Iterable[str | Path], against: str | Path | None = None, *, out: str | Path | None = None,
    sample: int = SAMPLE, features_only: bool = False, device: str = "auto",
) -> Diagnosed:  # fmt: skip
    """Measure what happens inside finished runs; tables, `diagnose.json` and figures are written into each of them.

    `against`: a run of the same images that is shown beside them, such as the host without CPF. `out`: another folder
    to write to; for several runs, one folder in it for each. `sample`: how many of a run's images are looked at.
    Several runs end with a table of all of them: does lower or higher entropy go with better discovery?
    `features_only`: look at the features that the runs kept alone. That takes no time, and nothing is written to them.

    >>> print(newkinds.diagnose_runs("runs/cpf", against="runs/host").text)
    """
    opened = _open_runs([runs] if isinstance(runs, (str, Path)) else runs)
    other = None if against is None else _open_runs([against])[0]
    if sample < 2:
        raise NewkindsError(f"{sample} image(s) cannot be diagnosed: at least 2 are needed.")
    if other is not None:
        for run in opened:
            _require_same_images(run, other)
    beside: Diagnosis | None = None
    if features_only:
        found = [_of_kept_features(run) for run in opened]
        beside = None if other is None else _of_kept_features(other)
    else:
        folders = _folders(opened, None if out is None else Path(out))
        if other is not None:
            beside = _earlier(other.folder, other, sample) or _measure(other, sample, device)
        found = []
        for run, folder in zip(opened, folders, strict=True):
            measured = _earlier(folder, run, sample)
            if measured is not None:
                say(f"{run.folder} is diagnosed already: to measure it again, delete {folder / RESULT}")
            for name in (RESULT, TABLES):
                _own_files(run, folder).require(name)  # before the work, not after it
            measured = measured or _measure(run, sample, device)
            _write(measured, beside, run, folder)
            found.append(measured)
    if len(found) == 1:
        return Diagnosed(found, diagnosis_text(found[0], beside))
    if out is not None and any(run.accuracy for run in found):
        for name, content in entropy_and_accuracy(several.groups_of(found)).items():
            write_output(make_folder(Path(out)) / name, content)
    return Diagnosed(found, several.comparison_text(found if beside is None else [*found, beside]))


def _open_runs(folders: Iterable[str | Path]) -> list[Run]:
    """Runs that are finished, each once; what is wrong with one is reported before any work."""
    runs: dict[Path, Run] = {}
    for folder in folders:
        run = Run(folder)
        if not run.folder.is_dir():
            raise NewkindsError(f"there is no folder {folder}: name the folder of a finished run.")
        run.config()
        if not run.model_file.is_file():
            raise NewkindsError(f"{folder} is not finished (it has no model): to resume it, rerun its command.")
        runs.setdefault(run.folder.resolve(), run)
    if not runs:
        raise NewkindsError("no run is named: name the folder of at least one finished run.")
    return list(runs.values())


def _require_same_images(run: Run, other: Run) -> None:
    """Spectra of different images cannot be compared."""
    ours, theirs = ({path: seen.content for path, seen in earlier_images(each).items()} for each in (run, other))
    if ours != theirs or run.protocol().images != other.protocol().images:
        raise NewkindsError(
            f"{other.folder} is not a run of the same images as {run.folder}: name one that is, or leave out --against."
        )


def _folders(runs: Sequence[Run], out: Path | None) -> list[Path]:
    """Where the results of each run go."""
    if out is None or [run.folder.resolve() for run in runs] == [out.resolve()]:
        return [run.folder for run in runs]
    if (out / "config.yaml").exists():
        raise NewkindsError(f"{out} is a run of its own, whose files would be replaced: choose another --out.")
    make_folder(out)  # before the work, not after it
    if len(runs) == 1:
        return [out]
    names = ["-".join(run.folder.resolve().parts[-2:]) for run in runs]
    if len(set(names)) < len(names):
        names = [f"{place:03d}-{name}" for place, name in enumerate(names, start=1)]
    return [make_folder(out / name) for name in names]


def _earlier(folder: Path, run: Run, images: int) -> Diagnosis | None:
    """What an earlier diagnosis of the same model found, so that many runs can be resumed."""
    if not (folder / RESULT).is_file():
        return None
    try:
        found = Diagnosis.of_json(Run(folder).read_json(RESULT)["run"])
    except (NewkindsError, KeyError, TypeError):
        warn(f"{folder / RESULT} is damaged or of another version: it is measured again.")
        return None
    if (found.model, found.requested) != (checksum(run.model_file), images):
        return None
    return replace(found, accuracy=known_accuracy(run))  # the run may have been assigned since


def _measure(run: Run, images: int, device: str) -> Diagnosis:
    """Look at a sample of a run's images, which is the same for all runs of the same images."""
    loaded, table = load(run.folder, device), images_of(run)
    if table.vectors is not None:
        raise NewkindsError(f"{run.folder} is of ready-made vectors, which have no tokens and fields: --features-only.")
    sample = np.random.default_rng(seed_for("diagnosis", 0)).permutation(len(table))[:images]
    seen = Observation(loaded.model)
    chosen = table.rows(sorted(sample.tolist()))
    for part in details_of(loaded.model.encoder, chosen, loaded.model.device, BATCH):
        seen.add(part.tokens, part.encoded)
    if seen.images < 2:
        raise NewkindsError(f"{run.folder} has {seen.images} readable image(s), and 2 are needed to diagnose a run.")
    return _describe(
        run, requested=images, images=seen.images, of=len(table), spectra=seen.spectra(), measures=seen.measures(),
        drawn=seen.drawn(), note="" if seen.cpf else NEEDS_CPF,
    )  # fmt: skip


def _of_kept_features(run: Run) -> Diagnosis:
    """The spectra of the features of all images, which a run keeps."""
    features = read_features(run)
    n = len(features)
    return _describe(run, requested=n, images=n, of=n, spectra=of_features(features), measures={}, drawn={})


def _describe(run: Run, **found: Any) -> Diagnosis:
    """What was found, with what the run is."""
    config = run.config()
    size = f", {config.backbone['image_size']} px" if config.backbone["image_size"] else ""
    return Diagnosis(
        run=str(run.folder), data=config.data["name"], split=run.protocol().split,
        backbone=f"{config.backbone['name']}{size}", method=config.method["name"],
        organizer=set_otherwise(config.organizer, ORGANIZERS[config.organizer["name"]]), seed=config.train.seed,
        model=checksum(run.model_file), accuracy=known_accuracy(run), **found,
    )  # fmt: skip


def _write(found: Diagnosis, beside: Diagnosis | None, run: Run, folder: Path) -> None:
    """All files of a diagnosis. They are made before the first is written, so that nothing is half done."""
    content = {"run": found.as_json(), "against": beside and beside.as_json(), "about": ABOUT}
    made: dict[str, bytes | str] = {
        RESULT: json_text(content, folder / RESULT, indent=1, ensure_ascii=False) + "\n",
        TABLES: diagnosis_text(found, beside) + "\n",
        **pictures(found, beside),
    }
    own = _own_files(run, folder)
    for name, written in made.items():
        own.write(name, written)


def _own_files(run: Run, folder: Path) -> OwnFiles:
    """What newkinds wrote where the results go: into the run, or elsewhere."""
    return run.own if folder == run.folder else OwnFiles(folder)
