"""What refining is worth: a person who knows the truth corrects some images of a run, and the others are judged.

    newkinds train cub --data-root datasets/ --set data.classes=50 --set backbone.image_size=112 --method frozen \
        --backbone vit_small_patch14_dinov2 --weights vit_small_patch14_dinov2.safetensors --out runs/cub50
    python benchmarks/refine.py runs/cub50 --out runs/refined

RUN is a finished run on data whose true classes are known. For each seed its categories are found again in its
features, by `--assigner`, whitened; then somebody looks at some of the unlabelled images and says where each belongs:

    uncertain   those of which the model is least sure
    random      any
    merges      no image: the largest categories were split in two, a fifth of all, and refined; in that run those
                with the same commonest class are merged

Judged are the images that nobody touched: before (with the corrections applied), after refining, and if the categories
are found afresh with the new labels instead. A table takes minutes; what is in --out already is not computed again.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

import newkinds
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.data import load_table
from newkinds.discovery.categories import Discovery
from newkinds.runs.run import Run
from newkinds.text import text_table
from side_by_side import machine

WAYS = ("uncertain", "random", "merges")


def correct(found: Discovery, truth: dict[str, str], way: str, images: int, seed: int) -> None:
    """What the person does; a category stands for the class that it is matched with, one to one."""
    unlabelled = [member for member in found.members if member.given_label is None]
    if way == "merges":
        classes: dict[str, list[int]] = {}
        for category in found.new:
            inside = Counter(truth[m.path] for m in unlabelled if m.category_id == category.id)
            classes.setdefault(inside.most_common(1)[0][0], []).append(category.id)
        for same in (ids for ids in classes.values() if len(ids) > 1):
            found.merge(same)
        return
    names = sorted(set(truth.values()))
    counts = np.zeros((len(found.categories), len(names)), dtype=int)
    for member in unlabelled:
        counts[member.category_id, names.index(truth[member.path])] += 1
    category_of = dict(zip([names[c] for c in linear_sum_assignment(-counts)[1]], found.categories, strict=False))
    if way == "uncertain":
        seen = sorted(unlabelled, key=lambda member: member.confidence)[:images]
    else:
        seen = [unlabelled[row] for row in np.random.default_rng(seed).permutation(len(unlabelled))[:images]]
    right = [m.path for m in seen if category_of[truth[m.path]].id == m.category_id]
    if right:
        found.accept(right)
    for name, category in category_of.items():
        if paths := [m.path for m in seen if truth[m.path] == name and m.category_id != category.id]:
            found.move(paths, category.id)


def accuracy(found: Discovery, truth: dict[str, str], judged: set[str], known: list[str]) -> float:
    rows = [(truth[m.path], m.category_id) for m in found.members if m.path in judged]
    return 100 * clustering_accuracy([t for t, _ in rows], [c for _, c in rows], known).all


def assigned(run: Path, assigner: str, out: Path, seed: int) -> Discovery:
    """The categories that are found anew in the features of a run, with the labels that it has; found once."""
    if (out / "assignments.csv").is_file():
        return Discovery.read(out)
    return newkinds.assign(run, assigner, out=out, seed=seed, settings={"embedding": {"whiten": 0.5}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--assigner", default="balanced")
    parser.add_argument("--images", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    args = parser.parse_args()
    table = load_table(Run(args.run).config().data)
    truth = {path: str(name) for path, name in zip(table.paths, table.truth or [], strict=True)}
    print(machine())
    rows = []
    for way in args.ways:
        for images in args.images if way != "merges" else [0]:
            figures = []
            for seed in args.seeds:
                folder = args.out / f"{way}-{images}-{seed}"
                found = assigned(args.run, args.assigner, folder / "run", seed)
                if way == "merges":
                    if not found.revision:
                        for category in found.new[: len(found.categories) // 5]:
                            found.split(category.id, 2)
                    found = newkinds.refine(found.run)
                if not found.revision:
                    correct(found, truth, way, images, seed)
                judged = {m.path for m in found.members if m.given_label is None and not m.status}
                refined = newkinds.refine(found.run)
                afresh = assigned(refined.run, args.assigner, folder / "afresh", seed)
                figures.append([accuracy(one, truth, judged, table.known) for one in (found, afresh, refined)])
            mean = np.mean(figures, axis=0)
            gains = np.subtract([row[2] for row in figures], [row[0] for row in figures])
            gain = f"{gains.mean():+.1f} ± {gains.std(ddof=1):.1f}"
            categories = len([category for category in refined.categories if category.size])
            rows.append([way, f"{images}", *(f"{value:.1f}" for value in mean), gain, f"{categories}"])
            print(rows[-1], flush=True)
    columns = ["corrected", "images", "before %", "afresh %", "refined %", "gain", "categories"]
    print(text_table(columns, rows))


if __name__ == "__main__":
    main()
