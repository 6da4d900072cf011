"""The budget of a search, and what is said if it was not kept."""

import time

import pytest

from newkinds.search.clock import Clock


class Hands:
    """The time, as a test sets it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        patch.setattr(time, "monotonic", lambda: self.now)


def test_no_more_than_a_quarter_over_is_not_worth_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands(monkeypatch)
    clock = Clock(100.0)
    hands.now = 125.0
    assert clock.overrun() == ""


def overrun_after(hands: Hands, embedding: float, trainings: float) -> str:
    """What is said of 60 s if the stages take so long; embedding was measured to take 20 s."""
    clock = Clock(60.0)
    with clock.stage("embed every image once", 20.0):
        hands.now += embedding
    with clock.stage("compare trainings"):
        hands.now += trainings
    return clock.overrun()


def test_what_took_longer_than_measured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert overrun_after(Hands(monkeypatch), embedding=50, trainings=55) == (
        "this took 105 s, 45 s more than --time 60 s: 'embed every image once' took 50 s instead of the expected 20 s"
    )


def test_what_explains_but_little_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert overrun_after(Hands(monkeypatch), embedding=27, trainings=80) == (
        "this took 107 s, 47 s more than --time 60 s, most of it for 'compare trainings' (80 s)"
    )


def test_else_what_took_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert overrun_after(Hands(monkeypatch), embedding=21, trainings=80) == (
        "this took 101 s, 41 s more than --time 60 s, most of it for 'compare trainings' (80 s)"
    )
