"""Every system on one data set: the same backbone, cached views, epochs and rule for the learning rate.

The data set is a folder with one sub-folder per class; classes are drawn, the first are known, half of their images are
labelled (the split of organizers.py). Each system is trained at each learning rate on the labelled images alone, split
again (`data.tune`); the rate with the best All there is taken, and each seed is trained on all images with it. No label
of an image that is judged takes part in that. Finished runs are not run again; several processes may work in one --out.

    python benchmarks/systems.py --data CUB_200_2011/images:50:25 --weights vit_small_patch14_dinov2.fp16.safetensors \\
        --seeds 0 1 --out runs/systems
"""

import argparse
import json
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch

import newkinds
from newkinds.comparison import OverSeeds
from newkinds.errors import NewkindsError
from newkinds.files import write_whole
from newkinds.methods import METHODS
from newkinds.runs.run import Run
from newkinds.text import text_table
from newkinds.verbs.assign import assign
from organizers import write_split

COLUMNS = ("all", "old", "new")
NARROW = {"projection_hidden": 1024, "output_dim": 2048}  # heads made for millions of images are most of the cost
# assigner, whitened
FROZEN = (("kmeans", False), ("sskmeans", False), ("ward", False), ("pim", False), ("balanced", True), ("pim", True))
SMALL = {"batch_size": 32, "epoch_size": 160}
PROMPTED = {"tuning": {"name": "prompts", "blocks": 1}, "train": SMALL}
# what cannot be cached as it is published, or is slow without a GPU, and what is run instead
INSTEAD: dict[str, dict[str, Any]] = {
    "promptcal-stage1": PROMPTED,
    "promptcal": PROMPTED,
    "sptnet": {"backbone": {"image_size": 56}, "train": {**SMALL, "epoch_size": 96, "cache_views": 0}},
}
NOTES = {
    "promptcal-stage1": "prompts in the last block only, so that the others can be cached; batches of 32, 5 an epoch",
    "promptcal": "as its first stage",
    "sptnet": "nothing can be cached: 56 px, batches of 32, 3 an epoch",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="FOLDER:CLASSES:KNOWN[:IMAGES PER CLASS]")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2")
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3, 1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--methods", nargs="+", default=[name for name in METHODS if METHODS[name].trains])
    parser.add_argument("--pim", action="store_true", help="let PIM assign the trained features, too")
    parser.add_argument("--collect", action="store_true", help="run nothing: print what is finished")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    bench = Systems(given)
    if not given.collect:
        bench.baselines()
        for method in given.methods:
            try:
                rate = bench.rate(method)
                for seed in given.seeds:
                    bench.cell(method, seed, rate)
                    if given.pim:
                        bench.assigned(method, seed, rate, "pim")
            except NewkindsError as error:
                print(f"{method} is left out: {error}", flush=True)
    print(bench.table())


class Systems:
    """The runs of one data set, each in its own folder, and their figures in a file beside it."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.out = given, given.out.resolve()
        folder, classes, known, *images = given.data.split(":")
        self.out.mkdir(parents=True, exist_ok=True)
        self.csv, self.k, self.known = self.out / "data.csv", int(classes), int(known)
        if not self.csv.is_file():
            write_split(self.csv, folder, self.k, self.known, int(images[0]) if images else None)
        self.images = len(self.csv.read_text().splitlines()) - 1

    def settings(self, method: str, seed: int, rate: float, tune: bool) -> list[Mapping[str, Any]]:
        given = self.given
        config = METHODS[method].Config.__dataclass_fields__
        narrow = {name: value for name, value in NARROW.items() if name in config and method != "cms"}
        first = METHODS[method].starts_from
        start = {"start": str(self.folder(first, seed, self.rate(first), tune))} if first else {}
        return [
            {
                "data": {"name": "csv", "path": str(self.csv), "tune": tune},
                "k": self.known if tune else self.k,
                "backbone": {
                    "name": given.backbone, "weights": given.weights, "image_size": given.size, "train_blocks": 1,
                },
                "method": {"name": method, **narrow},
                "train": {
                    "seed": seed, "lr": rate, "epochs": given.epochs, "epoch_size": self.images,
                    "cache_views": given.views, "workers": 0, **start,
                },
            },
            INSTEAD.get(method, {}),
        ]  # fmt: skip

    def folder(self, method: str, seed: int, rate: float, tune: bool) -> Path:
        return self.out / f"{method}-{rate:g}-{'tune-' if tune else ''}{seed}"

    def rate(self, method: str) -> float:
        """The learning rate with the best All on labelled images that were split again; the first of equal ones."""
        scores = {rate: self.cell(method, 0, rate, tune=True)["all"] for rate in self.given.rates}
        return max(scores, key=lambda rate: scores[rate])

    def cell(self, method: str, seed: int, rate: float, tune: bool = False) -> dict[str, float]:
        """All, Old and New in percent, and seconds of training."""
        folder = self.folder(method, seed, rate, tune)
        file = folder.with_suffix(folder.suffix + ".json")
        if not file.is_file():
            if first := METHODS[method].starts_from:
                self.cell(first, seed, self.rate(first), tune)
            found = self._run(folder, self.settings(method, seed, rate, tune))
            write_whole(file, json.dumps({"method": method, "seed": seed, "rate": rate, "tune": tune, **found}))
            print(folder.name, found, flush=True)
        return json.loads(file.read_text())

    def _run(self, folder: Path, settings: list[Mapping[str, Any]]) -> dict[str, float]:
        started = time.monotonic()
        try:
            newkinds.discover(None, folder, page=False, settings=settings)
        except NewkindsError as error:
            if "diverged" not in str(error):
                raise
            return {**dict.fromkeys(COLUMNS, 0.0), "seconds": time.monotonic() - started}
        seconds = sum(row["seconds"] for row in Run(folder).metrics())
        return {**_accuracies(newkinds.evaluate(folder)["metrics"]), "seconds": seconds}

    def baselines(self) -> None:
        """Assigners of features that are not trained."""
        frozen = self.out / "frozen"
        if not (frozen / "features.safetensors").is_file():
            newkinds.discover(None, frozen, page=False, settings=self.settings("frozen", 0, 0.1, False))
        for seed, (name, whiten) in product(self.given.seeds, FROZEN):
            self._assign(frozen, "frozen", seed, name, whiten)

    def assigned(self, method: str, seed: int, rate: float, assigner: str) -> None:
        """A finished cell's features with another assigner."""
        self._assign(self.folder(method, seed, rate, False), method, seed, assigner, False)

    def _assign(self, run: Path, method: str, seed: int, assigner: str, whiten: bool) -> None:
        words = f"{assigner}{' whitened' if whiten else ''}"
        copy = self.out / f"{method}+{words.replace(' ', '-')}-{seed}"
        file = copy.with_suffix(".json")
        if not file.is_file():
            assign(run, assigner=assigner, whiten=whiten, out=copy, seed=seed)
            found = _accuracies(newkinds.evaluate(copy)["metrics"])
            cell = {"method": f"{method} + {words}", "seed": seed, "rate": None, "tune": False, "seconds": 0.0}
            write_whole(file, json.dumps({**cell, **found}))
            print(copy.name, found, flush=True)

    def table(self) -> str:
        """Mean ± standard deviation over the seeds of each system at its chosen rate."""
        cells = [json.loads(file.read_text()) for file in sorted(self.out.glob("*.json"))]
        finished = [cell for cell in cells if not cell["tune"]]
        rows = []
        for method in dict.fromkeys(cell["method"] for cell in finished):
            of_method = [cell for cell in finished if cell["method"] == method]
            rates = sorted({cell["rate"] for cell in of_method if cell["rate"] is not None})
            over = [OverSeeds.of({cell["seed"]: cell[name] for cell in of_method}) for name in COLUMNS]
            of_tuning = [cell for cell in cells if cell["tune"] and cell["method"] == method]
            tuned = [cell["all"] for cell in of_tuning if [cell["rate"]] == rates]
            rows.append((
                method, *(f"{figure.mean:.1f} ± {figure.std or 0:.1f}" if figure else "" for figure in over),
                str(len(of_method)), ", ".join(f"{rate:g}" for rate in rates), f"{tuned[0]:.1f}" if tuned else "",
                f"{sum(cell['seconds'] for cell in of_method) / len(of_method):.0f}", NOTES.get(method, ""),
            ))  # fmt: skip
        rows.sort(key=lambda row: (not row[0].startswith("frozen"), row[0]))
        header = ("system", "All", "Old", "New", "seeds", "rate", "All when tuned", "s", "differs")
        return text_table(header, rows)


def _accuracies(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: 100 * float(metrics[f"acc_{name}"] or 0) for name in COLUMNS}


if __name__ == "__main__":
    main()
