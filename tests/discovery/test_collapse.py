"""A result in which nearly all images are in one category says so, where it is shown and where it is judged."""

from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds
from newkinds.discovery.collapse import COLLAPSED, largest_share

Cli = Callable[..., tuple[int, str, str]]


def test_the_share_of_the_largest_category() -> None:
    assert largest_share([]) is None
    assert largest_share(["a", "b", "a", "a"]) == 0.75


@pytest.mark.parametrize(("assigner", "collapses"), [("own", True), ("kmeans", False)])
def test_what_has_collapsed_says_so_where_it_is_made_and_judged(
    tmp_path: Path, run_cli: Cli, assigner: str, collapses: bool
) -> None:
    """To SimGCD's prototypes, before any step, one of them is the nearest for nearly all images."""
    run = tmp_path / "run"
    few = {"data": {"categories": 6, "per_category": 12}, "train": {"epochs": 1, "lr": 0.0}}
    newkinds.train("creatures", run, settings=few)
    for verb in (("assign", run, "--assigner", assigner), ("eval", run)):
        status, printed, said = run_cli(*verb)
        assert status == 0
        assert ("this has collapsed and says nothing" in " ".join(f"{printed} {said}".split())) == collapses
    found = newkinds.Discovery.read(run)
    share = largest_share(member.category_id for member in found.members if member.given_label is None)
    assert (share is not None and share >= COLLAPSED) == collapses
