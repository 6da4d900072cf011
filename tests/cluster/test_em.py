"""Soft clusters that share a covariance: against a naive derivation, from files, with odd data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.covariance import OAS

from newkinds.assigners import ASSIGNERS
from newkinds.cluster import BalancedSemiSupervisedKMeans, SharedCovarianceEM, em, rows
from newkinds.cluster.em import align_shares, oracle_shrinkage
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.errors import NewkindsError

KNOWN, CLUSTERS, DIM = 3, 6, 10


def stretched(sizes: list[int], seed: int = 0, spread: float = 3.0) -> tuple[NDArray, NDArray, NDArray]:
    """Unit rows of clusters that are long in the same few directions, in which all of them overlap; labels, truth."""
    random = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    centres = np.zeros((len(sizes), DIM))
    centres[:, 4:] = random.normal(size=(len(sizes), DIM - 4))
    noise = random.normal(size=(len(truth), DIM)) * np.array([spread] * 4 + [0.4] * (DIM - 4))
    points = centres[truth] + noise + 4.0
    labels = np.where((truth < KNOWN) & (random.random(len(truth)) < 0.5), truth, -1)
    return points / np.linalg.norm(points, axis=1, keepdims=True), labels, truth


def naive_shrinkage(S, n, times):
    """Formula 23 of Chen et al., 2010, from eigenvalues."""
    values = np.linalg.eigvalsh(S)
    P, squares, square = len(values), (values**2).sum(), values.sum() ** 2
    best = ((1 - 2 / P) * squares + square) / ((n + 1 - 2 / P) * (squares - square / P))
    return float(np.clip(times * best, 0.1, 1))


def naive(U, labels, K, start, s, f, tau, rounds, inner):
    """The formulas, one number after another."""
    n, P = U.shape
    X, a, sure = U - U.mean(axis=0), np.where(labels >= 0, labels, start), np.ones(n)
    for _ in range(rounds):
        began = a.copy()
        w = np.where(labels >= 0, 3.0, sure)
        mu = np.stack(
            [np.average(X[a == k], axis=0, weights=w[a == k]) if (a == k).any() else 0 * X[0] for k in range(K)]
        )
        S = sum(w[i] * np.outer(X[i] - mu[a[i]], X[i] - mu[a[i]]) for i in range(n)) / w.sum()
        shrink = naive_shrinkage(S, w.sum() ** 2 / (w**2).sum() - K, 3) if s == "auto" else s
        values, vectors = np.linalg.eigh((1 - shrink) * S * P / np.trace(S) + shrink * np.eye(P))
        T = vectors @ np.diag(values**-0.5) @ vectors.T
        Z = X @ T / np.linalg.norm(X @ T, axis=1, keepdims=True)
        shares = np.eye(K)[a] * np.where(labels >= 0, 1.0, sure)[:, None]
        for _ in range(inner):
            before = a.copy()
            C = shares.T @ Z
            C /= np.linalg.norm(C, axis=1, keepdims=True)
            G, b = Z @ C.T / tau, np.zeros(K)

            def softmax(b, G=G):
                e = np.exp(G + b - (G + b).max(axis=1, keepdims=True))
                return e / e.sum(axis=1, keepdims=True)

            for _ in range(20):
                m = (softmax(b)[labels < 0].sum(axis=0) + np.bincount(labels[labels >= 0], minlength=K)) / n
                b = 0.5 * b + 0.5 * f * (b - np.log(m * K + 0.001))
            shares = softmax(b)
            shares[labels >= 0] = np.eye(K)[labels[labels >= 0]]
            a, sure = shares.argmax(axis=1), shares.max(axis=1)
            if (a == before).all():
                break
        if (a == began).all():
            break
    return a, shares


@pytest.mark.parametrize(("evenness", "shrinkage"), [(0.0, "auto"), (0.0, 0.1), (0.5, "auto"), (1.0, 0.3)])
def test_it_is_what_the_formulas_say(evenness: float, shrinkage: float | Literal["auto"]) -> None:
    U, labels, truth = stretched([30, 20, 25, 10, 30, 15])
    start = np.where(np.random.default_rng(1).random(len(truth)) < 0.3, 0, truth)
    want, shares = naive(U, labels, CLUSTERS, start, shrinkage, evenness, 0.05, rounds=4, inner=3)
    em = SharedCovarianceEM(CLUSTERS, start, evenness=evenness, shrinkage=shrinkage, rounds=4, max_iter=3)
    found = em.fit(U, labels)
    np.testing.assert_array_equal(found.labels_, want)
    np.testing.assert_allclose(found.predict_proba(U, labels), shares, atol=1e-8)
    free = labels < 0
    np.testing.assert_array_equal(found.predict(U)[free], want[free])


def test_few_rows_are_believed_less() -> None:
    random = np.random.default_rng(0)
    scales = np.linspace(0.3, 2, 60)
    found = []
    for n in (20, 60, 400, 100_000):
        X = random.normal(size=(n, 60)) * scales
        X -= X.mean(axis=0)
        found.append(oracle_shrinkage(torch.from_numpy(X.T @ X / n), n))
        # scikit-learn leaves out what matters little in many dimensions
        assert found[-1] == pytest.approx(max(OAS(assume_centered=True).fit(X).shrinkage_, 0.1), rel=0.05)
    assert found[0] > found[1] > found[2] >= found[3] == 0.1
    assert oracle_shrinkage(torch.eye(4), 100) == 1
    assert oracle_shrinkage(torch.diag(torch.arange(4.0)), 0) == 1


def test_sizes_are_as_even_as_they_are_believed_to_be() -> None:
    U, labels, truth = stretched([60, 8, 8, 8, 8, 8], spread=0.4)
    spread_of_sizes = []
    for evenness in (0.0, 0.5, 1.0):
        found = SharedCovarianceEM(CLUSTERS, truth, evenness=evenness, temperature=0.2).fit(U, labels)
        spread_of_sizes.append(float(found.predict_proba(U, labels).sum(dim=0).std()))
    assert spread_of_sizes[0] > spread_of_sizes[1] > spread_of_sizes[2]


def test_from_a_file_it_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    U, labels, truth = stretched([40] * 6)
    np.save(tmp_path / "rows.npy", U)
    start = np.where(np.random.default_rng(1).random(len(truth)) < 0.4, 5, truth)
    in_memory = SharedCovarianceEM(CLUSTERS, start, evenness=0.5).fit(U, labels)
    monkeypatch.setattr(rows, "HELD", 0)
    monkeypatch.setattr(em, "HELD", 0)
    monkeypatch.setattr(rows, "NUMBERS_AT_ONCE", 32 * DIM)
    on_disk = np.load(tmp_path / "rows.npy", mmap_mode="r")
    streamed = SharedCovarianceEM(CLUSTERS, start, evenness=0.5).fit(on_disk, labels)
    np.testing.assert_array_equal(streamed.labels_, in_memory.labels_)
    np.testing.assert_allclose(streamed.directions_, in_memory.directions_, atol=1e-9)


def test_long_clusters_are_found_where_k_means_finds_the_long_direction() -> None:
    scores = []
    for seed in range(3):
        U, labels, truth = stretched([40] * 6, seed, spread=1.5)
        rows_, given, hidden = torch.from_numpy(U).float(), torch.from_numpy(labels), labels < 0
        found = []
        for name in ("balanced", "em"):
            torch.manual_seed(0)
            assigner = ASSIGNERS[name](DIM, KNOWN, CLUSTERS)
            assigner.fit(rows_, given)
            category = assigner(rows_).argmax(dim=1).numpy()
            found.append(clustering_accuracy(truth[hidden], category[hidden], range(KNOWN)).all)
        scores.append(found)
    balanced, by_em = np.mean(scores, axis=0)
    assert by_em > balanced + 0.15


def test_votes_are_aligned_before_they_are_added() -> None:
    random = np.random.default_rng(0)
    shares = torch.from_numpy(random.dirichlet(0.2 * np.ones(5), size=40))
    renumbered = [shares[:, torch.from_numpy(random.permutation(5))] for _ in range(3)]
    torch.testing.assert_close(align_shares([shares, *renumbered]), shares)
    noisy = [F.normalize(other + torch.from_numpy(0.2 * random.random((40, 5))), p=1, dim=1) for other in renumbered]
    assert (align_shares([shares, *noisy]).argmax(1) == shares.argmax(1)).double().mean() > 0.9


@pytest.mark.parametrize("labelled", [True, False])
def test_copies_and_constant_columns(labelled: bool) -> None:
    """A thousand copies of one row, a column that says nothing, more clusters than different rows."""
    U, labels, _ = stretched([12] * 6)
    U = np.concatenate([U, np.repeat(U[:1], 1000, axis=0)])
    U = np.concatenate([U, np.full((len(U), 1), 0.5)], axis=1)
    labels = np.concatenate([labels, np.full(1000, -1)]) if labelled else np.full(len(U), -1)
    assigner = ASSIGNERS["em"](DIM + 1, KNOWN if labelled else 0, 8, restarts=2)
    torch.manual_seed(0)
    assigner.fit(F.normalize(torch.from_numpy(U).float(), dim=1), torch.from_numpy(labels))
    found = assigner(F.normalize(torch.from_numpy(U).float(), dim=1))
    assert found.isfinite().all()
    assert len(found[-1000:].argmax(dim=1).unique()) == 1
    same = SharedCovarianceEM(2, np.zeros(5)).fit(np.ones((5, 3)))
    assert len(set(same.labels_)) == 1


def test_what_is_wrong_is_said() -> None:
    U, labels, truth = stretched([5] * 6)
    with pytest.raises(NewkindsError, match="clusters from 0 to 3"):
        SharedCovarianceEM(4, truth).fit(U, labels)
    with pytest.raises(NewkindsError, match="one cluster per row"):
        SharedCovarianceEM(6, truth[1:]).fit(U, labels)
    with pytest.raises(NewkindsError, match="shrinkage is a number between 0 and 1, or 'auto', not 'much'"):
        SharedCovarianceEM(6, truth, shrinkage="much").fit(U, labels)  # type: ignore[arg-type]
    with pytest.raises(NewkindsError, match="temperature"):
        SharedCovarianceEM(6, truth, temperature=0.0).fit(U, labels)
    start = BalancedSemiSupervisedKMeans(6, 1, 0).fit(U, labels).labels_
    U[3, 3] = np.nan
    with pytest.raises(NewkindsError, match="row 3"):
        SharedCovarianceEM(6, start).fit(U, labels)
