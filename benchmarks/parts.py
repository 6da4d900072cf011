"""Are primitives parts? Trains CPF on creatures with several seeds, and compares where its primitives lie with the true
parts of the creatures, beside k-means on the same tokens, fixed cells of the image, and chance.

    python benchmarks/parts.py --out runs/parts --seeds 0 1 2 3 4

To resume, rerun the same command: finished runs are read again.
"""

import argparse
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev

from newkinds import train
from newkinds.discovery.finished import load
from newkinds.evaluation.parts import FIELD, SHARES, Scores, parts_of
from newkinds.text import text_table

TRAINED = {"train": {"epochs": 15, "batch_size": 32, "lr": 0.02}, "method": {"memax_weight": 2.0}}  # as in the demo
UNTRAINED = {"train": {"epochs": 0, "freeze_organizer": True}}
APART = {"organizer": {"readout": "apart", "start": "tokens"}}
FORMS: dict[str, list[dict]] = {
    "as in the paper, never trained": [UNTRAINED],
    "as in the paper, trained": [TRAINED],
    "apart, started from tokens, never trained": [APART, UNTRAINED],
    "apart, started from tokens, trained": [APART, TRAINED],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the runs are")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="which forms of CPF")
    parser.add_argument("--collect", action="store_true", help="train nothing: read what is finished")
    given = parser.parse_args()
    rows: dict[str, list[Scores]] = {}
    for form in given.forms:
        for seed in given.seeds:
            folder = given.out / f"{form.replace(', ', '-').replace(' ', '_')}-{seed}"
            if not (given.collect or (folder / "model.safetensors").is_file()):
                train("creatures", folder, method="simgcd", organizer="cpf", seed=seed, settings=FORMS[form])
            if not (folder / "model.safetensors").is_file():
                continue
            run = load(folder)
            for way, scores in parts_of(run.model, run.config).scores.items():
                # what is not a field hardly depends on CPF: k-means sees the tokens that enter it
                rows.setdefault(f"{way}, {form}" if way in (FIELD, SHARES) else f"{way} ({form})", []).append(scores)
    columns = ["patches grouped by", "seeds", *Scores.__dataclass_fields__]
    print(text_table(columns, [[name, str(len(some)), *_spread(some)] for name, some in rows.items()]))


def _spread(scores: list[Scores]) -> list[str]:
    """Mean ± standard deviation over the seeds, of each statistic."""
    values = [list(asdict(score).values()) for score in scores]
    return [f"{mean(v):.3f}" + (f" ± {stdev(v):.3f}" if len(v) > 1 else "") for v in zip(*values, strict=True)]


if __name__ == "__main__":
    main()
