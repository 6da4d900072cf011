"""Bars and messages."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from newkinds import console as module


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()
    monkeypatch.setattr(module, "console", Console(file=screen, force_terminal=True, width=100))
    return screen


def test_a_bar_inside_a_bar_is_hidden(terminal: io.StringIO) -> None:
    with module.progress_bar("outer", 2) as bar:
        for _ in range(2):
            assert list(module.track([1, 2], "inner", total=2)) == [1, 2]
            bar.advance("note")
    assert "outer" in terminal.getvalue()
    assert "inner" not in terminal.getvalue()
    assert list(module.track([1], "later", total=1)) == [1]
    assert "later" in terminal.getvalue()


def test_a_bar_that_failed_does_not_hide_the_next(terminal: io.StringIO) -> None:
    with pytest.raises(ValueError, match="stop"), module.progress_bar("first", 1):
        raise ValueError("stop")
    list(module.track([1], "second", total=1))
    assert "second" in terminal.getvalue()


def test_names_of_files_are_no_markup(terminal: io.StringIO) -> None:
    module.warn("[bold]x[/nothing].png")
    assert "[bold]x[/nothing].png" in terminal.getvalue()
