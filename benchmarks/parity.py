"""How near our systems are to the published implementations, as a table: how many cases, how many numbers, and how far
the farthest of them is.

    python benchmarks/parity.py                # prints the table of docs/reproducibility.md; about a minute

It runs the tests that compare with the stored numbers of these implementations (tests/numbers/), and listens.
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

TESTS = Path(__file__).resolve().parents[1] / "tests"


class Part(NamedTuple):
    """What of a system is compared, and by which tests of which file."""

    what: str
    file: str
    tests: tuple[str, ...]


SYSTEMS: dict[str, tuple[Part, ...]] = {
    "all": (
        Part("split", "data/test_splits.py", ("large_published_splits", "small_published_splits", "published_draws")),
        Part(
            "class lists", "data/published/test_class_lists.py",
            ("lists_are_the_published_ones_in_the_published_order",),
        ),
        Part("metric", "cluster/test_metrics.py", ("published_numbers",)),
        Part(
            "schedules", "methods/test_schedules.py",
            ("cosine_lr_is_the_published_one", "teacher_temperature_is_the_published_one"),
        ),
        Part("backbone", "encoders/test_weights.py", ("tokens_of_the_published_vit",)),
    ),
    "GCD": (
        Part("losses", "methods/test_losses.py", ("supervised_contrastive_published", "info_nce_published")),
        Part("head", "methods/test_gcd.py", ("published_weights_give_published_outputs",)),
        Part(
            "clustering", "cluster/test_cluster.py",
            (
                "semi_supervised_kmeans_published", "kmeans_published", "k_means_plus_plus_published",
                "empty_cluster_published",
            ),
        ),
        Part(
            "counting", "cluster/test_count.py",
            ("brent_asks_for_the_published_numbers", "halving_asks_for_the_published_numbers"),
        ),
    ),
    "SimGCD": (
        Part("losses", "methods/test_losses.py", ("self_distillation_published", "mean_entropy_gap_published")),
        Part("head", "methods/test_heads.py", ("published_weights_give_published_outputs",)),
        Part("step", "methods/test_simgcd.py", ("a_step_gives_the_published_numbers",)),
    ),
    "LegoGCD": (
        Part("losses", "methods/test_legogcd.py", ("distillation_with_divergence_published",)),
        Part("step", "methods/test_legogcd.py", ("a_step_gives_the_published_numbers",)),
    ),
    "CMS": (
        Part("step", "methods/test_cms.py", ("a_step_gives_the_published_numbers",)),
        Part(
            "clustering, in float32", "methods/test_cms.py", ("the_rounds_of_mean_shift_are_the_published_ones",)
        ),
        Part("clustering, in float32", "cluster/test_cluster.py", ("mean_shift_published", "ward_published")),
        Part("counting", "cluster/test_count.py", ("ward_with_the_truth_gives_the_published_answer",)),
    ),
    "SelEx": (
        Part("step, partly in float32", "methods/test_selex.py", ("a_step_gives_the_published_numbers",)),
        Part("clustering", "cluster/test_cluster.py", ("balanced_kmeans_published",)),
        Part("clustering", "methods/test_selex.py", ("the_hierarchy_is_the_published_one",)),
    ),
    "ProtoGCD": (
        Part("losses", "methods/test_protogcd.py", ("hard_and_soft_targets_published", "separation_published")),
        Part("step", "methods/test_protogcd.py", ("a_step_gives_the_published_numbers",)),
    ),
    "AMEND": (
        Part("losses", "methods/test_amend.py", ("neighbourhood_nce_published", "repulsion_published")),
        Part("learning rate", "methods/test_schedules.py", ("the_cosine_of_amend_begins_again_every_30_epochs",)),
    ),
    "UNO": (
        Part("targets", "methods/test_uno.py", ("sinkhorn_published", "sinkhorn_of_large_logits_published")),
    ),
    "SPTNet": (
        Part(
            "prompts", "methods/test_sptnet.py",
            (
                "prompts_inside_patches_are_the_published_ones", "the_frame_is_the_published_one",
                "both_together_are_the_published_ones",
            ),
        ),
        Part("turns", "methods/test_sptnet.py", ("turns_as_published_begin_anew_with_each_epoch",)),
    ),
    "InfoSieve": (Part("step", "methods/test_infosieve.py", ("a_step_gives_the_published_numbers",)),),
    "DCCL": (
        Part(
            "losses", "methods/test_dccl.py",
            ("a_step_gives_the_published_numbers", "memories_start_as_the_published_ones_from_raw_features"),
        ),
        Part("graph", "cluster/test_communities.py", ("the_graph_is_the_published_one",)),
    ),
    "PromptCAL": (
        Part(
            "losses", "methods/test_promptcal.py",
            ("affinity_published", "affinity_with_a_budget_of_pairs_published", "the_loss_of_a_branch_published"),
        ),
        Part(
            "graph", "cluster/test_affinity.py",
            (
                "lists_consensus_and_diffusion_are_the_published_ones", "two_steps_are_the_published_ones",
                "the_threshold_is_the_published_one",
            ),
        ),
        Part("graph", "methods/test_promptcal.py", ("positives_and_negatives_are_the_published_ones",)),
        Part(
            "prompts", "encoders/test_prompts.py",
            ("tokens_are_the_published_ones", "what_enters_and_what_methods_read_are_the_published_ones"),
        ),
    ),
    "GPC": (
        Part(
            "clustering", "cluster/test_split_merge.py",
            ("splits_are_judged_as_published", "merges_are_judged_as_published"),
        ),
        Part(
            "clustering", "methods/test_gpc.py",
            ("temperatures_are_the_published_ones", "a_published_round_adds_clusters_when_it_merges"),
        ),
    ),
    "PIM": (
        Part(
            "steps", "assigners/test_pim.py",
            ("objective_and_steps_are_the_published_ones", "the_search_finds_the_published_weight"),
        ),
        Part("clustering", "assigners/test_pim.py", ("the_published_start_is_that_of_the_least_distances",)),
    ),
    "CoGe, released": (
        Part(
            "module", "encoders/test_coge.py",
            (
                "the_released_form_gives_the_published_numbers", "the_released_calibration_gives_the_published_numbers",
            ),
        ),
    ),
}  # fmt: skip


def functions() -> dict[str, tuple[str, str]]:
    """Node id of each test, without its parameters → system and what is compared."""
    return {
        f"{part.file}::test_{name}": (system, part.what)
        for system, parts in SYSTEMS.items()
        for part in parts
        for name in part.tests
    }


class Listener:
    """A plugin of pytest that notes every comparison of the tests: how many numbers, and the largest difference."""

    def __init__(self) -> None:
        self.row = ("", "")
        self.cases: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.numbers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.largest: defaultdict[tuple[str, str], float] = defaultdict(float)

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        path = f"{item.path.relative_to(TESTS).as_posix()}::{getattr(item, 'originalname', item.name)}"
        self.row = functions()[path]
        self.cases[self.row] += 1

    def note(self, got: Any, expected: Any) -> None:
        if isinstance(expected, dict):
            for name, value in expected.items():
                self.note(got[name], value)
            return
        ours, theirs = (_as_array(value) for value in (got, expected))
        if ours.shape == theirs.shape and ours.size:
            self.numbers[self.row] += ours.size
            self.largest[self.row] = max(self.largest[self.row], float(np.nanmax(np.abs(ours - theirs))))

    def beside(self, compare: Callable[..., Any]) -> Callable[..., Any]:
        """The same function of two values, noted."""

        def noted(got: Any, expected: Any, *more: Any, **settings: Any) -> Any:
            outcome = compare(got, expected, *more, **settings)
            self.note(got, expected)
            return outcome

        return noted

    def approx(self, original: Callable[..., Any]) -> Callable[..., Any]:
        listener = self

        class Noted:
            __array_ufunc__ = None  # else NumPy compares each number alone
            __hash__ = None  # type: ignore[assignment]

            def __init__(self, expected: Any, *more: Any, **settings: Any) -> None:
                self.expected, self.inner = expected, original(expected, *more, **settings)

            def __eq__(self, got: Any) -> bool:
                listener.note(got, self.expected)
                return bool(got == self.inner)

        return Noted


def _as_array(value: Any) -> np.ndarray:
    return np.asarray(value.detach() if isinstance(value, torch.Tensor) else value, float)


def main() -> None:
    listener = Listener()
    patches = pytest.MonkeyPatch()
    patches.setattr(torch.testing, "assert_close", listener.beside(torch.testing.assert_close))
    patches.setattr(np.testing, "assert_allclose", listener.beside(np.testing.assert_allclose))
    patches.setattr(pytest, "approx", listener.approx(pytest.approx))
    wanted = [str(TESTS / name) for name in functions()]
    status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--no-header", *wanted], plugins=[listener])
    patches.undo()
    if status:
        sys.exit("a test fails: see above")
    print("\n| system | compared | cases | numbers | largest difference |\n|---|---|--:|--:|--:|")
    for system, what in dict.fromkeys(functions().values()):
        row = (system, what)
        largest = f"{listener.largest[row]:.0e}".replace("e-0", "e-") if listener.largest[row] else "0"
        numbers = f"{listener.numbers[row]:,}" if listener.numbers[row] else "all"
        print(f"| {system} | {what} | {listener.cases[row]} | {numbers} | {largest} |")


if __name__ == "__main__":
    main()
