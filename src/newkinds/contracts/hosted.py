"""What organizers, tunings and assigners promise in the run of a method, which here is SimGCD."""

from dataclasses import replace

from .base import AskedPart, NotAsked, contract
from .methods import (
    a_killed_run_ends_with_the_same_bits,
    gradients_reach_all_that_trains,
    it_trains,
    what_was_saved_answers_the_same,
)
from .small import Plugged

HOST = "simgcd"


def in_host(part: AskedPart) -> tuple[AskedPart, Plugged]:
    """The host, and the part plugged into it."""
    return replace(part, kind="method", name=HOST, settings={}), {part.kind: {"name": part.name, **part.settings}}


@contract("organizer", "tuning")
def trains_in_a_run(part: AskedPart) -> str | None:
    """In a run of SimGCD gradients reach all of it, and the loss falls."""
    gradients_reach_all_that_trains(*in_host(part))
    return it_trains(*in_host(part))


@contract("organizer", "tuning")
def a_killed_run_of_a_host_ends_with_the_same_bits(part: AskedPart) -> None:
    """A run with it that is killed after an epoch and resumed ends with the same bits."""
    a_killed_run_ends_with_the_same_bits(*in_host(part))


@contract("organizer", "tuning", "assigner")
def a_saved_run_of_a_host_answers_the_same(part: AskedPart) -> None:
    """What was saved of a run with it gives the same categories, and some to an image never seen."""
    if part.kind == "assigner" and part.entry.learnt:
        raise NotAsked("the loss of a method learns it")
    what_was_saved_answers_the_same(*in_host(part))
