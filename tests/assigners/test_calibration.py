"""Confidence that means something, and images that belong nowhere; by hand, and on classes that overlap."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.assigners import ASSIGNERS, Assigner, Assignment
from newkinds.assigners.calibration import (
    BINS,
    Calibration,
    Curve,
    HeldOutImages,
    choose_threshold,
    distance,
    fit_curve,
    reliability,
    silhouette_of_rows,
)  # fmt: skip
from newkinds.assigners.resplit import resplits
from newkinds.assigners.whitening import Whitening
from newkinds.cluster.metrics import is_correct

DIM = 12


def blobs(classes: int = 12, per_class: int = 30, noise: float = 0.35, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Unit rows around random directions, close enough to overlap; labels of half of the first half; truth."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(classes * per_class) % classes
    centres = F.normalize(torch.randn(classes, DIM, generator=generator), dim=1)
    rows = F.normalize(centres[truth] + noise * torch.randn(len(truth), DIM, generator=generator), dim=1)
    labelled = (truth < classes // 2) & (torch.rand(len(truth), generator=generator) < 0.5)
    return rows, torch.where(labelled, truth, -1), truth


def calibrated(
    rows: Tensor, labels: Tensor, categories: int = 12, name: str = "sskmeans"
) -> tuple[Calibration, Assigner, Assignment]:
    assigner = ASSIGNERS[name](DIM, categories // 2, categories)
    torch.manual_seed(0)
    assigner.fit(rows, labels)
    assignment = Assignment.of_logits(assigner(rows), assigner.temperature)
    calibration = Calibration()
    calibration.fit(rows, labels, assignment.category, assigner)
    return calibration, assigner, calibration(rows, assignment)


def test_silhouette_distance_and_confidence_by_hand() -> None:
    rows, labels, _ = blobs(noise=0.5)
    calibration, _, found = calibrated(rows, labels)
    assert found.unlike is not None
    x, category = rows.double().numpy(), found.category.numpy()
    farthest = found.unlike.argmax().item()
    assert found.unlike[farthest] > 1
    for i in [farthest, *range(0, len(x), 29)]:
        away = [1 - x[i] @ (m := x[category == c].mean(axis=0)) / np.linalg.norm(m) for c in range(12)]
        own, other = away[category[i]], min(a for c, a in enumerate(away) if c != category[i])
        unlike = own / calibration.threshold.item()
        odds = calibration.offset.item() + calibration.slope.item() * (other - own) / max(own, other)
        odds -= calibration.fall.item() * max(unlike - 1, 0)
        expected = 1 / (1 + np.exp(-odds))
        assert found.unlike[i].item() == pytest.approx(unlike, abs=1e-5)
        assert found.confidence[i].item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["sskmeans", "ward", "kmeans"])
def test_confidence_is_about_the_share_that_is_right(name: str) -> None:
    ours, before = [], []
    for seed in range(3):
        rows, labels, truth = blobs(32, per_class=40, noise=0.3, seed=seed)
        calibration, assigner, found = calibrated(rows, labels, 32, name)
        found = calibration(rows, found, inside=True)
        free = labels < 0
        right = is_correct(truth[free].numpy(), found.category[free].numpy())
        raw = Assignment.of_logits(assigner(rows), assigner.temperature).confidence[free].numpy()
        ours.append(found.confidence[free].numpy().mean() - right.mean())
        before.append(raw.mean() - right.mean())
    assert abs(np.mean(ours)) < 0.05
    assert abs(np.mean(before)) > 0.1


def test_sure_images_are_right_more_often() -> None:
    rows, labels, truth = blobs(noise=0.45, per_class=60)
    _, _, found = calibrated(rows, labels)
    free = labels < 0
    right = is_correct(truth[free].numpy(), found.category[free].numpy())
    confidence = found.confidence[free].numpy()
    sure = confidence > np.median(confidence)
    assert right[sure].mean() > right[~sure].mean() + 0.1


def test_a_far_image_is_none_of_these_and_not_sure() -> None:
    rows, labels, _ = blobs(noise=0.2)
    rows = F.normalize(rows + torch.eye(1, DIM) * 3, dim=1)  # all share something that the stranger lacks
    calibration, assigner, found = calibrated(rows, labels)
    assert found.unlike is not None
    assert (found.unlike > 1).double().mean() < 0.05
    far = -torch.eye(1, DIM)
    stranger = calibration(far, Assignment.of_logits(assigner(far), 0.01))
    assert stranger.unlike is not None
    assert stranger.unlike.item() > 1
    assert stranger.confidence.item() < 0.05
    assert "If their own category did not exist" in calibration.note


@pytest.mark.parametrize("closer", [1.0, 0.3])
def test_the_threshold_is_a_quantile_of_labelled_distances_with_a_floor(closer: float) -> None:
    rows, labels, truth = blobs()
    centres = torch.stack([rows[truth == c].mean(dim=0) for c in range(12)])
    pulled = F.normalize(torch.lerp(centres[truth], rows, closer), dim=1)
    rows = torch.where((labels >= 0)[:, None], pulled, rows)  # as if labelled images had been trained on
    threshold, note = choose_threshold(rows, labels, truth, centres)
    x, y, away = rows.double().numpy(), truth.numpy(), []
    for i in range(len(x)):
        others = x[(y == y[i]) & (np.arange(len(x)) != i)].mean(axis=0)
        away.append(1 - x[i] @ others / np.linalg.norm(others))
    of_labelled = np.array(away)[labels.numpy() >= 0]
    floor = np.median(away) + 2.0537 * 1.4826 * np.median(np.abs(away - np.median(away)))
    quantile = np.quantile(of_labelled, 0.98)
    assert threshold == pytest.approx(max(quantile, floor), abs=1e-4)
    assert (quantile < floor) == (closer < 1)
    assert f"{100 * (of_labelled > threshold).mean():.1f} % of labelled images" in note


def test_a_saved_calibration_says_the_same() -> None:
    rows, labels, _ = blobs()
    calibration, assigner, found = calibrated(rows, labels)
    loaded = Calibration()
    assert not loaded.fitted
    loaded.load_state_dict(calibration.state_dict())
    again = loaded(rows, Assignment.of_logits(assigner(rows)))
    assert loaded.fitted
    assert found.unlike is not None
    assert again.unlike is not None
    assert torch.equal(again.confidence, found.confidence)
    assert torch.equal(again.unlike, found.unlike)


@pytest.mark.parametrize("labelled", [0, 1, 3])
def test_few_labels_leave_the_default_and_say_so(labelled: int) -> None:
    rows, _, truth = blobs()
    labels = torch.full_like(truth, -1)
    labels[:labelled] = truth[:labelled]  # one image each
    calibration, _, found = calibrated(rows, labels)
    fitted = (calibration.offset.item(), calibration.slope.item(), calibration.fall.item())
    assert fitted == pytest.approx(Curve())
    assert "not calibrated" in calibration.note
    assert "comes from all images" in calibration.note
    assert calibration.record == {"bins": [], "error": None, "images": 0, "note": calibration.note}
    assert found.confidence.isfinite().all()
    assert found.unlike is not None
    assert (found.unlike > 1).double().mean() < 0.1


def test_one_image_per_class_is_too_little_to_split() -> None:
    rows, _, truth = blobs()
    labels = torch.full_like(truth, -1)
    labels[:6] = truth[:6]
    _, _, found = calibrated(rows, labels)
    assert found.confidence.isfinite().all()


def test_few_images_change_the_curve_little_and_many_find_the_truth() -> None:
    random = np.random.default_rng(0)

    def drawn(n: int) -> HeldOutImages:
        x, unlike = random.uniform(-0.5, 1, n), random.uniform(0.5, 2, n)
        odds = 0.5 + 2 * x - 3 * np.maximum(unlike - 1, 0)
        return HeldOutImages(x, random.random(n) < 1 / (1 + np.exp(-odds)), unlike)

    assert fit_curve([drawn(5000), drawn(5000)]) == pytest.approx((0.5, 2, 3), abs=0.2)
    offset, slope, fall = fit_curve([drawn(1)])
    assert (offset, slope, np.log(fall)) == pytest.approx((Curve().offset, Curve().slope, np.log(Curve().fall)), abs=1)
    always = fit_curve([HeldOutImages(np.ones(50), np.ones(50, bool), np.full(50, 1.5))])  # never a wrong one
    assert always.slope > 0
    assert always.fall > 0


def test_a_right_image_a_bit_beyond_the_threshold_is_not_called_0_percent_sure() -> None:
    """Not by the default curve, less so where images there were right, and never the other way round."""
    random = np.random.default_rng(0)
    silhouette, unlike = random.uniform(0.2, 0.6, 400), np.where(np.arange(400) < 20, 1.2, 0.6)
    right = silhouette + random.normal(0, 0.2, 400) > 0.1
    curves = {"default": Curve(), "right beyond": fit_curve([HeldOutImages(silhouette, right, unlike)])}
    wrong_there = HeldOutImages(silhouette, right & (unlike < 1), unlike)
    curves["wrong beyond"] = fit_curve([wrong_there])
    image = torch.tensor([0.7], dtype=torch.float64)
    at = {name: [curve.at(image, torch.tensor([u])).item() for u in (0.9, 1.0, 1.2)] for name, curve in curves.items()}
    assert at["default"][2] > 0.5
    assert at["right beyond"][2] > 0.85 > at["default"][2] > at["wrong beyond"][2]
    for inside, edge, beyond in at.values():
        assert inside == edge  # nothing is taken off before the threshold
        assert edge > beyond


def test_held_out_images_are_compared_with_the_others_of_their_category() -> None:
    rows, labels, _ = blobs(noise=0.5)
    [split] = resplits(labels.numpy(), 1, np.random.RandomState(0))
    points = rows[torch.from_numpy(split.rows)]
    category = split.truth.copy()
    category[split.hidden[:3]] = (category[split.hidden[:3]] + 1) % split.categories
    x = points.double().numpy()
    found = HeldOutImages.of(points, torch.from_numpy(category), split)
    centres = np.stack([x[category == c].mean(axis=0) for c in range(split.categories)])
    threshold, _ = choose_threshold(
        points, torch.from_numpy(split.labels), torch.from_numpy(category), torch.from_numpy(centres).float()
    )
    for place, i in enumerate(split.hidden):
        members = np.flatnonzero(category == category[i])
        others = x[members[members != i]].mean(axis=0)
        away = [1 - x[i] @ m / np.linalg.norm(m) for m in centres]
        own = 1 - x[i] @ others / np.linalg.norm(others)
        other = min(a for c, a in enumerate(away) if c != category[i])
        assert found.silhouette[place] == pytest.approx((other - own) / max(own, other), abs=1e-5)
        assert found.unlike[place] == pytest.approx(own / threshold, abs=1e-5)


def test_images_of_the_run_are_compared_with_the_others_of_their_category_and_new_ones_with_all() -> None:
    """As if each were taken out of its centre, and shown to the model as an image that it never saw."""
    rows, labels, truth = blobs(noise=0.5)
    category = torch.as_tensor(truth).clone()
    category[0] = 11  # as all others of that category are elsewhere, it is alone
    category[1:][category[1:] == 11] = 10
    assigner = ASSIGNERS["sskmeans"](DIM, 6, 12)
    calibration = Calibration()
    calibration.fit(rows, labels, category, assigner)
    given = Assignment(category, torch.ones(len(rows)))
    found = calibration(rows, given, inside=True)
    assert found.unlike is not None
    for i in (1, 7, 30):
        without = Calibration()
        without.load_state_dict(calibration.state_dict())
        others = (category == category[i]).nonzero()[:, 0]
        without.centres[category[i]] = rows[others[others != i]].mean(dim=0)
        alone = without(rows[i : i + 1], Assignment(category[i : i + 1], torch.ones(1)))
        assert alone.unlike is not None
        assert found.confidence[i].item() == pytest.approx(alone.confidence.item(), abs=1e-5)
        assert found.unlike[i].item() == pytest.approx(alone.unlike.item(), abs=1e-5)
    seen_again = calibration(rows, given)
    assert (found.confidence <= seen_again.confidence + 1e-6).all()
    assert found.confidence[0] == seen_again.confidence[0], "nothing is known of others there"


def test_a_run_of_before_has_no_sizes_and_is_read_all_the_same() -> None:
    rows, labels, truth = blobs()
    category, calibration, older = torch.as_tensor(truth), Calibration(), Calibration()
    calibration.fit(rows, labels, category, ASSIGNERS["sskmeans"](DIM, 6, 12))
    older.load_state_dict({name: value for name, value in calibration.state_dict().items() if name != "sizes"})
    given = Assignment(category, torch.ones(len(rows)))
    assert torch.allclose(older(rows, given, inside=True).confidence, calibration(rows, given).confidence, atol=1e-5)


def test_an_image_alone_in_its_category_is_no_evidence() -> None:
    rows, labels, _ = blobs()
    [split] = resplits(labels.numpy(), 1, np.random.RandomState(0))
    points = rows[torch.from_numpy(split.rows)]
    everyone_else = torch.zeros(len(points), dtype=torch.int64)
    everyone_else[split.hidden[0]] = split.categories + 1  # an assigner that finds how many there are
    assert len(HeldOutImages.of(points, everyone_else, split).correct) == len(split.hidden) - 1
    calibration, assigner = Calibration(), ASSIGNERS["prototypes"](DIM, 6, 12)
    nothing = HeldOutImages(np.zeros(0), np.zeros(0, bool), np.zeros(0))
    calibration.fit(rows, labels, assigner(rows).argmax(dim=1), assigner, evidence=[nothing, nothing])
    assert "seen in training" in calibration.note  # as if there were no evidence at all


def test_a_run_of_an_earlier_version_can_be_read() -> None:
    rows, labels, _ = blobs()
    calibration, _, _ = calibrated(rows, labels)
    state = {name: value for name, value in calibration.state_dict().items() if name != "fall"}
    loaded = Calibration()
    loaded.load_state_dict(state)
    assert loaded.fall.item() == Curve().fall


def test_bins_come_from_splits_that_the_fit_has_not_seen() -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (2, 400))
    parts = [
        HeldOutImages(x[0], x[0] > 0.2, np.full(400, 0.5)),
        HeldOutImages(x[1], random.random(400) < 0.5, np.full(400, 0.5)),
    ]
    found = reliability(parts)
    confidence = []
    for own, other in ((0, 1), (1, 0)):
        offset, slope, _ = fit_curve([parts[other]])
        confidence.append(1 / (1 + np.exp(-offset - slope * x[own])))
    p, right = np.concatenate(confidence), np.concatenate([part.correct for part in parts])
    error = 0.0
    for i in range(BINS):
        inside = (p >= i / BINS) & (p < (i + 1) / BINS)
        error += abs(p[inside].sum() - right[inside].sum()) / 800
    assert found["error"] == pytest.approx(error, abs=1e-4)
    assert sum(b["images"] for b in found["bins"]) == 800
    assert reliability(parts[:1]) == {"bins": [], "error": None}


def test_evidence_from_outside_takes_the_place_of_splitting_again() -> None:
    rows, labels, _ = blobs()
    assigner = ASSIGNERS["prototypes"](DIM, 6, 12)
    category = assigner(rows).argmax(dim=1)
    [split] = resplits(labels.numpy(), 1, np.random.RandomState(0))
    points = rows[torch.from_numpy(split.rows)]
    right = HeldOutImages.of(points, torch.from_numpy(split.truth), split)  # as if all were assigned to their class
    assert right.correct.all()
    calibration, own = Calibration(), Calibration()
    calibration.fit(rows, labels, category, assigner, evidence=[right, right])
    own.fit(rows, labels, category, assigner)  # semi-supervised k-means stands in
    assert "seen in training" in own.note
    assert "seen in training" not in calibration.note
    assert calibration.record["images"] == 2 * len(split.hidden)
    assert calibration.record["error"] < 0.1
    assert calibration(rows, Assignment.of_logits(assigner(rows))).confidence.isfinite().all()


def test_whitened_rows_are_compared_whitened_and_a_lone_category_is_no_doubt() -> None:
    rows, labels, truth = blobs()
    whitening = Whitening(0.3)
    whitening.fit(rows, labels)
    centres = torch.stack([rows[truth == c].mean(dim=0) for c in range(12)])
    expected = silhouette_of_rows(whitening(rows), truth, whitening(centres))
    assert torch.allclose(silhouette_of_rows(rows, truth, centres, whitening), expected, atol=1e-5)
    assert (silhouette_of_rows(rows, torch.zeros_like(truth), centres[:1]) == 1).all()
    empty = torch.cat([centres, torch.zeros(1, DIM)])  # a category without images is nobody's neighbour
    assert torch.equal(silhouette_of_rows(rows, truth, empty), silhouette_of_rows(rows, truth, centres))


def test_a_trial_leaves_the_assigner_as_it_was() -> None:
    rows, labels, _ = blobs()
    for name in (name for name in ASSIGNERS if not ASSIGNERS[name].learnt and name != "pim"):
        assigner = ASSIGNERS[name](DIM, 6, 12)
        assigner.fit(rows, labels)
        before = assigner(rows)
        trial = assigner.trial(3, 6)
        trial.fit(rows[:90], torch.where(labels < 3, labels, -1)[:90])
        assert trial(rows).shape == (len(rows), 6)
        assert torch.equal(assigner(rows), before)
        assert (assigner.known, assigner.categories) == (6, 12)


def test_images_that_are_much_alike_are_told_apart_to_the_last_digits() -> None:
    """Distances of about 1e-6 in float32, where 1 - cosine would be right to one digit at most."""
    rows, _, truth = blobs()
    alike = F.normalize(rows[0].double() + 1e-3 * rows.double(), dim=1)
    centres = torch.stack([alike[truth == c].mean(dim=0) for c in range(12)])
    exact = 1 - (alike * F.normalize(centres, dim=1)[truth]).sum(dim=1)
    assert exact.max() < 1e-5
    assert torch.allclose(distance(alike.float(), truth, centres.float()).double(), exact, rtol=1e-3)
    found = silhouette_of_rows(alike.float(), truth, centres.float()).double()
    assert torch.allclose(found, silhouette_of_rows(alike, truth, centres), atol=1e-3)
