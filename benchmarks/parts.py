"""Are primitives parts, and does CPF draw attention to the creature? Trains SimGCD with and without CPF on creatures,
with several seeds, and compares where primitives lie with the true parts of the creatures, beside k-means on the same
tokens, fixed cells of the image, and chance; and how much of the class token's attention is on the creature.

    python benchmarks/parts.py --out runs/parts --seeds 0 1 2

To resume, rerun the same command: finished runs are read again.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from newkinds import train
from newkinds.discovery.finished import load
from newkinds.evaluation.part_agreement import CELLS, RANDOM, foreground_of, parts_of
from newkinds.text import text_table

Settings = dict[str, dict[str, Any]]
TRAINED: Settings = {
    "train": {"epochs": 15, "batch_size": 32, "lr": 0.02},
    "method": {"memax_weight": 2.0},
}  # the demo's
FROZEN: Settings = {"backbone": {"train_blocks": 0}}  # the tokens stay the same: only CPF and the head train
UNTRAINED: Settings = {"train": {"epochs": 0, "freeze_organizer": True}}
MOVING: Settings = {"organizer": {"normalise": False, "train_field": True}}  # unlike the plan of `discover`
FORMS: dict[str, tuple[str, list[Settings]]] = {  # name → organizer and settings
    "paper-untrained": ("cpf", [UNTRAINED]),
    "paper-frozen": ("cpf", [TRAINED, FROZEN]),
    "parts-untrained": ("cpf-parts", [MOVING, UNTRAINED]),
    "parts-frozen": ("cpf-parts", [MOVING, TRAINED, FROZEN]),
    "parts-fixed": ("cpf-parts", [UNTRAINED]),  # its field never trains
    "host": ("none", [TRAINED]),
    "paper": ("cpf", [TRAINED]),
    "parts": ("cpf-parts", [MOVING, TRAINED]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the runs are")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="with and without CPF")
    given = parser.parse_args()
    groups: dict[str, list[Mapping[str, float]]] = {}
    attention: dict[str, list[Mapping[str, float]]] = {}
    for form in given.forms:
        organizer, settings = FORMS[form]
        for seed in given.seeds:
            folder = given.out / f"{form}-{seed}"
            if not (folder / "model.safetensors").is_file():
                train("creatures", folder, method="simgcd", organizer=organizer, seed=seed, settings=settings)
            run = load(folder)
            looks = foreground_of(run.model.encoder.backbone, run.config, run.model.device)
            attention.setdefault(form, []).append(asdict(looks))
            if organizer != "none":
                for way, scores in parts_of(run.model, run.config).scores.items():
                    row = way if way in (CELLS, RANDOM) else f"{way}: {form}"  # these two do not depend on the run
                    groups.setdefault(row, []).append(asdict(scores))
    for title, rows in (("patches grouped by", groups), ("class-token attention", attention)):
        columns = [title, "runs", *next(iter(rows.values()))[0]]
        print(text_table(columns, [[name, str(len(some)), *_spread(some)] for name, some in rows.items()]), "\n")


def _spread(scores: Sequence[Mapping[str, float]]) -> list[str]:
    """Mean ± standard deviation over the runs, of each statistic."""
    columns = [[score[name] for score in scores] for name in scores[0]]
    return [f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "") for values in columns]


if __name__ == "__main__":
    main()
