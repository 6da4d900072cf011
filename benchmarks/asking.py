"""Which images to ask about: a person who knows the truth answers questions about a run, which learns from each block.

Features are an .npz file with `cls` (n, D) and `truth` (n,) (`features.py` makes them). A seed draws the kinds, which
half of them is known, and which half of their images is labelled; a quarter of the unlabelled images is put aside. The
rest becomes a run of vectors; then, block by block, a strategy chooses images, the person says of each what it is, and
the run is refined:

    next        the questions of `newkinds next`
    random      any images
    doubtful    those of which the model is least certain

An answer is a name: the image is accepted where it is if its category has that name, moved to the category that has it,
or its category gets the name if it has none yet; else a new category of that name is made. Of a pair of categories
that may be one, both images are looked at, and it counts as two answers; if they are of one kind, the two are merged.

Judged are the unlabelled images that nobody was asked about, all unlabelled ones, and those put aside (by `predict`).
All, Old and New: matched one to one; named: the share in a category with the name of its kind, no match.
A cell (data, seed, strategy) takes half a minute and is kept in --out: what is there is not computed again.

    python benchmarks/asking.py cars=cars-112.npz:30 birds=cub-112.npz:50 --seeds 0 1 2 --out runs/asking
"""

import argparse
import csv
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import newkinds
from choosing import draw
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.discovery.categories import Discovery
from newkinds.discovery.kinds import is_numbered
from newkinds.discovery.questions import next_questions
from newkinds.files import write_whole
from newkinds.text import text_table
from side_by_side import machine

ANSWERS = (20, 50, 100, 200)  # after which the run is refined and judged
ASIDE = 0.25  # of the unlabelled images
SPLITS = ("not asked", "all", "put aside")

Ask = Callable[[Discovery, int, np.random.Generator], list[list[str]]]


def ask_next(found: Discovery, number: int, random: np.random.Generator) -> list[list[str]]:
    """The questions of `newkinds next`, as the images that each shows."""
    return [question.paths for question in next_questions(found, number=number)]


def ask_random(found: Discovery, number: int, random: np.random.Generator) -> list[list[str]]:
    paths = [member.path for member in found.members if not member.status and member.given_label is None]
    return [[paths[place]] for place in random.permutation(len(paths))[:number]]


def ask_doubtful(found: Discovery, number: int, random: np.random.Generator) -> list[list[str]]:
    open_ones = [member for member in found.members if not member.status and member.given_label is None]
    return [[member.path] for member in sorted(open_ones, key=lambda member: member.confidence)[:number]]


STRATEGIES: dict[str, Ask] = {"next": ask_next, "random": ask_random, "doubtful": ask_doubtful}


# -- the person ------------------------------------------------------------------------------------------------------


def answer(found: Discovery, images: Sequence[str], truth: dict[str, str]) -> None:
    """What the person does who was shown one image, or one of each of two categories that may be one."""
    if len(images) == 2 and truth[images[0]] == truth[images[1]]:
        first, second = (found.category(_place_of(found, image)) for image in images)
        free = [category for category in (first, second) if is_numbered(category.name)]
        if first.id != second.id and free:  # two that have names of their own are two
            found.merge([free[0].id], into=second.id if free[0] is first else first.id)
    for image in images:
        _name(found, image, truth[image])


def _place_of(found: Discovery, image: str) -> int:
    return next(member.category_id for member in found.members if member.path == image)


def _name(found: Discovery, image: str, kind: str) -> None:
    """Say of an image that it is of this kind."""
    place = _place_of(found, image)
    there = next((one for one in found.categories if one.name == kind), None)
    if there is not None and there.id == place:
        found.accept([image])
    elif there is not None:
        found.move([image], there.id)
    elif place >= 0 and is_numbered(found.category(place).name):
        found.rename(place, kind)
        found.accept([image])
    else:
        found.move([image], kind, new=True)


# -- a cell ----------------------------------------------------------------------------------------------------------


def begin(file: Path, kinds: int, images: int, seed: int, folder: Path) -> tuple[Discovery, dict[str, str], list[str]]:
    """A run on a draw, the true kind of each of its images by their names, and those of the ones that are put aside."""
    read = np.load(file, allow_pickle=False)
    rows, truth, labels = draw(read["cls"], read["truth"], kinds, seed, 1.0)
    random = np.random.default_rng(seed)
    if images:
        kept = np.sort(np.concatenate([random.permutation(np.flatnonzero(truth == k))[:images] for k in range(kinds)]))
        rows, truth, labels = rows[kept], truth[kept], labels[kept]
    unlabelled = random.permutation(np.flatnonzero(labels < 0))
    aside = np.sort(unlabelled[: int(ASIDE * len(unlabelled))])
    inside = np.setdiff1d(np.arange(len(truth)), aside)
    names = {f"row-{place:05d}": f"kind {truth[row]}" for place, row in enumerate(inside)}
    if not (folder / "run" / "assignments.csv").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "vectors.npy", rows[inside].numpy())
        np.save(folder / "aside.npy", rows[aside].numpy())
        with (folder / "labels.csv").open("w", newline="") as out:
            lines = [[place, f"kind {labels[row]}"] for place, row in enumerate(inside) if labels[row] >= 0]
            csv.writer(out).writerows([["row", "label"], *lines])
        newkinds.discover(
            folder / "vectors.npy", folder / "run", labels=str(folder / "labels.csv"), k=kinds, time="20s"
        )
    return Discovery.read(folder / "run"), names, [f"kind {truth[row]}" for row in aside]


def judge(found: Discovery, truth: dict[str, str], asked: set[str], aside: list[str], file: Path) -> dict[str, float]:
    """All, Old, New and named in percent, of each split."""
    known = {m.given_label for m in Discovery.read(file.parent / "run").found_members if m.given_label is not None}
    unlabelled = [m for m in found.members if m.path in truth]
    predicted = newkinds.predict(found.run, [file])
    splits = {
        "not asked": [(truth[m.path], m.category) for m in unlabelled if m.path not in asked],
        "all": [(truth[m.path], m.category) for m in unlabelled],
        "put aside": [(kind, p.category) for kind, p in zip(aside, predicted, strict=True)],
    }
    scores = {}
    for split, pairs in splits.items():
        true, given = [kind for kind, _ in pairs], [name for _, name in pairs]
        for name, value in clustering_accuracy(true, given, known)._asdict().items():
            scores[f"{split}: {name}"] = 100 * value
        scores[f"{split}: named"] = 100 * float(np.mean([a == b for a, b in pairs]))
        new = [a == b for a, b in pairs if a not in known]
        scores[f"{split}: new named"] = 100 * float(np.mean(new))
    return scores


def play(folder: Path, start: Discovery, truth: dict[str, str], aside: list[str], ask: Ask, seed: int) -> list[dict]:
    """The scores before any answer, and after each block."""
    random = np.random.default_rng(seed)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start.run, folder / "0")
    unlabelled = {m.path: truth[m.path] for m in start.members if m.given_label is None}
    file = start.run.parent / "aside.npy"
    found, asked, given = Discovery.read(folder / "0"), set[str](), 0
    scores = [{"answers": 0, **judge(found, unlabelled, asked, aside, file)}]
    for upto in ANSWERS:
        while given < upto:
            questions = ask(found, upto - given, random)
            if not questions:
                break
            for images in questions:
                if given >= upto:
                    break
                answer(found, images, truth)
                asked.update(images)
                given += len(images)
        found = newkinds.refine(found.run, folder / str(upto), time="10s")
        scores.append({"answers": given, **judge(found, unlabelled, asked, aside, file)})
    shutil.rmtree(folder)
    return scores


# -- the table -------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="NAME=FILE.npz:KINDS[:IMAGES of each]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(machine())
    cells: dict[tuple[str, str], list[list[dict]]] = {}  # of each seed: the scores after each block
    for data in args.data:
        name, _, place = data.partition("=")
        file, kinds, images = (*place.split(":"), "0")[:3]
        for seed in args.seeds:
            for strategy in args.strategies:
                kept = args.out / f"{name}-{seed}-{strategy}.json"
                if not kept.is_file():
                    folder = args.out / f"{name}-{seed}"
                    start, truth, aside = begin(Path(file), int(kinds), int(images), seed, folder)
                    scores = play(folder / strategy, start, truth, aside, STRATEGIES[strategy], seed)
                    write_whole(kept, json.dumps(scores, indent=1))
                cells.setdefault((name, strategy), []).append(json.loads(kept.read_text()))
    for split in SPLITS:
        print(f"\n{split}: All / Old / New / named / new ones named, means over {len(args.seeds)} seeds")
        columns = ["data", "questions", *(str(n) for n in (0, *ANSWERS))]
        print(text_table(columns, [[name, way, *_row(runs, split)] for (name, way), runs in cells.items()]))
    print(f"\nwhat '{args.strategies[0]}' has more: mean and standard deviation over draws, and in how many of these")
    columns = ["images, figure", "than", *(str(n) for n in ANSWERS)]
    print(text_table(columns, _differences(cells, args.strategies)))


def _differences(cells: dict[tuple[str, str], list[list[dict]]], strategies: Sequence[str]) -> list[list[str]]:
    first, *others = strategies
    rows = []
    for figure in (f"{split}: {what}" for split in SPLITS for what in ("named", "all")):
        for other in others:
            more = [
                [ours[block][figure] - theirs[block][figure] for block in range(1, len(ANSWERS) + 1)]
                for name, way in cells
                if way == first
                for ours, theirs in zip(cells[name, first], cells[name, other], strict=True)
            ]
            shown = [
                f"{np.mean(c):+.1f} ± {np.std(c, ddof=1):.1f} ({np.sum(np.array(c) > 0)} of {len(c)})"
                for c in zip(*more, strict=True)
            ]
            rows.append([figure, other, *shown])
    return rows


def _row(runs: list[list[dict]], split: str) -> list[str]:
    figures = ("all", "old", "new", "named", "new named")
    return [
        " / ".join(f"{np.mean([run[block][f'{split}: {figure}'] for run in runs]):.1f}" for figure in figures)
        for block in range(len(ANSWERS) + 1)
    ]


if __name__ == "__main__":
    main()
