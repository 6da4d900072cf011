"""How honest confidence is, and what `unlike` finds: problems drawn from labelled data, with strangers thrown in.

    python benchmarks/calibration.py cub:50 photos/:20 --data-root datasets/ --backbone vit_small_patch14_dinov2

Data are names of data sets or folders with one folder per class, and how many of their classes a problem takes. Half of
these are known, and half of their images are labelled. A fifth of the others are held back as images never seen. Near
strangers are images of classes that were left out, far ones those of the other data. Features are kept in --cache.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from counting import features_of
from newkinds.assigners import ASSIGNERS, Assignment
from newkinds.assigners.calibration import Calibration
from newkinds.assigners.whitening import Whitening
from newkinds.cluster.metrics import is_correct
from newkinds.data.splits import gcd_split
from newkinds.text import text_table
from newkinds.verbs.choices import Choices
from side_by_side import machine

MOST_STRANGERS = 1000


def expected_calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = 10) -> float:
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, confidence - correct)).sum() / len(correct))


def judge(
    features: Tensor, of_class: NDArray[np.int64], classes: int, far: Tensor, name: str, whiten: bool, seed: int
) -> dict[str, float]:
    """Shares, of unlabelled training images unless another kind is named; `flagged`: unlike > 1.

    The AUROC is that of `unlike`, between strangers and members never seen.
    """
    random = np.random.RandomState(seed)
    number = random.permutation(of_class.max() + 1)[of_class]  # (n,)
    inside, near = features[number < classes], _some(features[number >= classes], random)
    truth = number[number < classes]
    kept, _ = gcd_split(truth, range(classes // 2), seed=seed)
    labels = np.full(len(truth), -1)
    labels[kept] = truth[kept]
    unseen = (random.random_sample(len(truth)) < 0.2) & (labels < 0)
    rows, given, true = inside[~unseen], torch.from_numpy(labels[~unseen]), truth[~unseen]
    torch.manual_seed(seed)
    whitening = Whitening("auto" if whiten else "none")
    whitening.fit(rows, given)
    assigner = ASSIGNERS[name](rows.shape[1], classes // 2, classes)
    assigner.fit(whitening(rows), given)

    def assigned(x: Tensor) -> Assignment:
        return Assignment.of_logits(assigner(whitening(x)), assigner.temperature)

    def unlike(x: Tensor, inside: bool = False) -> NDArray[np.float64]:
        found = calibration(x, assigned(x), whitening, inside=inside).unlike
        assert found is not None
        return found.double().numpy()

    def auroc(strangers: NDArray[np.float64]) -> float:
        both = np.concatenate([strange["unseen"], strangers])
        return float(roc_auc_score(np.arange(len(both)) >= len(strange["unseen"]), both)) if len(strangers) else np.nan

    before, calibration = assigned(rows), Calibration()
    calibration.fit(rows, given, before.category, assigner, whitening, seed)
    free = given < 0
    correct = is_correct(true[free.numpy()], before.category[free].numpy())
    raw = before.confidence[free].double().numpy()
    sure = calibration(rows, before, whitening, inside=True).confidence[free].double().numpy()
    never, of_never = assigned(inside[unseen]), truth[unseen]
    # one match for both: a category is that of a class among all images
    both = is_correct(
        np.concatenate([true[free.numpy()], of_never]),
        np.concatenate([before.category[free].numpy(), never.category.numpy()]),
    )[len(correct) :]
    sure_of_never = calibration(inside[unseen], never, whitening).confidence.double().numpy()
    far = _some(far, random)
    of = {"trained": rows, "unseen": inside[unseen], "near": near, "far": far}
    strange = {kind: unlike(x, kind == "trained") for kind, x in of.items()}
    return {
        "correct": float(correct.mean()),
        "confidence before": float(raw.mean()),
        "error before": expected_calibration_error(raw, correct),
        "confidence": float(sure.mean()),
        "error": expected_calibration_error(sure, correct),
        "never seen: correct": float(both.mean()),
        "never seen: confidence": float(sure_of_never.mean()),
        "never seen: error": expected_calibration_error(sure_of_never, both),
        "below 10 % sure": float((sure < 0.1).mean()),
        "right of these": float(correct[sure < 0.1].mean()) if (sure < 0.1).any() else np.nan,
        "above 90 % sure": float((sure > 0.9).mean()),
        "right of those": float(correct[sure > 0.9].mean()) if (sure > 0.9).any() else np.nan,
        "confidence of far before": float(assigned(far).confidence.mean()),
        "confidence of far": float(calibration(far, assigned(far), whitening).confidence.mean()),
        **{
            f"flagged {kind}": float((values > 1).mean()) if len(values) else np.nan for kind, values in strange.items()
        },
        "AUROC near": auroc(strange["near"]),
        "AUROC far": auroc(strange["far"]),
    }


def _some(rows: Tensor, random: np.random.RandomState) -> Tensor:
    return rows[torch.from_numpy(random.permutation(len(rows))[:MOST_STRANGERS])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", metavar="NAME|FOLDER:CLASSES", help="two or more")
    parser.add_argument("--data-root")
    parser.add_argument("--backbone")
    parser.add_argument("--weights")
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--cache", type=Path, default=Path("calibration-cache"), help="folder for features")
    parser.add_argument("--assigners", nargs="+", default=["sskmeans", "ward"])
    parser.add_argument("--whiten", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    data = {}
    for named in given.data:
        source = named.rpartition(":")[0]
        choices: Choices = {} if Path(source).exists() else {"data_root": given.data_root}
        choices["backbone"], choices["weights"] = given.backbone, given.weights
        choices["settings"] = {"backbone": {"image_size": given.image_size}}
        data[source] = features_of(source, choices, given.cache)
    lines = []
    for named in given.data:
        source, _, classes = named.rpartition(":")
        far = torch.cat([features for other, (features, _) in data.items() if other != source])
        for name in given.assigners:
            found = [judge(*data[source], int(classes), far, name, given.whiten, seed) for seed in given.seeds]
            means = np.nanmean([list(one.values()) for one in found], axis=0)
            lines.append([f"{Path(source).name}, {classes} classes, {name}", *(f"{100 * mean:.1f}" for mean in means)])
            print(*lines[-1], flush=True)
    print(f"\nIn %, means of {len(given.seeds)} draws ({machine()}):\n\n{text_table(['', *found[0]], lines)}")


if __name__ == "__main__":
    main()
