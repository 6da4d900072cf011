"""Does lower or higher entropy of features go with better discovery? Many short trainings on frozen features say so.

Hosts, organizers, learning rates and seeds of `organizers.py` on one data set; of each, the von Neumann entropy and
rank99 of the image features, with and without their mean, beside All and New. Finished cells are not run again. The end
is Spearman's rank correlation over all cells, within each host, and within each host and organizer.

    python benchmarks/entropy.py --data cub=CUB_200_2011/images:50:25 --seeds 0 1 2 --out runs/entropy \\
        --weights vit_small_patch14_dinov2.fp16.safetensors
"""

import argparse
import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

import organizers
from newkinds.diagnose import rank_at, von_neumann_entropy
from newkinds.evaluation.diagnose.several import spearman
from newkinds.files import write_whole
from newkinds.text import text_table

RATIOS = (0.01, 0.1, 1.0)  # organizer's learning rate over the head's
MEASURES = ("entropy", "own_entropy", "rank99")
judged = organizers.judged


@torch.inference_mode()
def judged_with_entropy(model: Any, table: Any, store: Any, seed: int) -> dict[str, float]:
    every = np.arange(len(table))
    chunks = [every[begin : begin + 256] for begin in range(0, len(every), 256)]
    model.eval()
    features = torch.cat([model.encoder(store.inputs(some, np.zeros_like(some))).feature for some in chunks])
    own = features - features.mean(dim=0)
    found = {"entropy": von_neumann_entropy(features), "own_entropy": von_neumann_entropy(own)}
    return {**judged(model, table, store, seed), **found, "rank99": rank_at(features)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="NAME=FOLDER:CLASSES:KNOWN[:IMAGES PER CLASS]")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--hosts", nargs="+", default=["simgcd", "legogcd"])
    parser.add_argument("--rows", nargs="+", default=["adapter", "grid", "cpf-parts"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--collect", action="store_true", help="run nothing: print what is finished")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    organizers.judged = judged_with_entropy
    cells = list(itertools.product(asked.hosts, asked.rows, RATIOS, asked.seeds))
    random.Random(0).shuffle(cells)  # what is finished at any time is a fair sample
    name = asked.data.partition("=")[0]
    common = {"backbone": "vit_small_patch14_dinov2", "size": 112, "views": 3, "steps": 300, "tune": False, "lr": None}
    frozen = {"blocks": 0, "backbone_ratio": 0.01, "draws": False}
    given = argparse.Namespace(**common, **frozen, weights=asked.weights, out=asked.out, ratio=None)
    if not asked.collect:
        backbone = organizers.backbone_of(given)
        table, tokens = organizers.embedded(asked.data, given, backbone, draw=0)
        for host, row, ratio, seed in cells:
            file = asked.out / f"{name}-{host}-{row}-{ratio:g}-{seed}.json"
            if not file.is_file():
                given.ratio = ratio
                found = organizers.run(table, tokens, backbone, host, row, seed, given)
                cell = {"host": host, "row": row, "ratio": ratio, "seed": seed, **found}
                write_whole(file, json.dumps(cell))
                print(file.stem, found, flush=True)
    report([json.loads(file.read_text()) for file in sorted(asked.out.glob(f"{name}-*.json"))])


def report(cells: list[dict[str, Any]]) -> None:
    groups: dict[str, list[dict[str, Any]]] = {"all": cells}
    for cell in cells:
        groups.setdefault(cell["host"], []).append(cell)
        groups.setdefault(f"{cell['host']} + {cell['row']}", []).append(cell)
    lines = []
    for name, some in groups.items():
        for measure in MEASURES:
            said = []
            for part in ("all", "new"):
                related = spearman([cell[measure] for cell in some], [cell[part] for cell in some])
                said.append(
                    "–" if related is None else f"{related[0]:+.2f} [{related[1][0]:+.2f}, {related[1][1]:+.2f}]"
                )
            low, high = (f"{pick(cell[measure] for cell in some):.2f}" for pick in (min, max))
            lines.append([name, measure, str(len(some)), low, high, *said])
    print(text_table(["runs", "of the features", "number", "lowest", "highest", "ρ with All", "ρ with New"], lines))


if __name__ == "__main__":
    main()
