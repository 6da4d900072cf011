"""Bars and messages."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from conftest import save_image
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


def test_only_bars_and_warnings_are_shown(terminal: io.StringIO) -> None:
    with module.show_only_bars():
        module.say("a detail")
        module.warn("a fault")
        assert list(module.track([1], "training", total=1)) == [1]
        with module.keep_quiet():
            list(module.track([1], "measuring", total=1))
    module.say("what follows")
    shown = terminal.getvalue()
    assert [words in shown for words in ("a fault", "training", "what follows")] == [True] * 3
    assert [words in shown for words in ("a detail", "measuring")] == [False] * 2


def test_names_of_files_are_no_markup(terminal: io.StringIO) -> None:
    module.warn("[bold]x[/nothing].png")
    assert "[bold]x[/nothing].png" in terminal.getvalue()


ORDERS = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08a.png"
HARMLESS = r"\x1b]0;owned\x07\x1b[2J\u009b31m\x0d\x08a.png"


def test_the_terminal_does_not_obey_names_of_files(terminal: io.StringIO) -> None:
    module.say(ORDERS)
    module.warn(f"{ORDERS} skipped")
    assert terminal.getvalue().count(HARMLESS) == 2
    with module.progress_bar(ORDERS, 1) as bar:
        bar.advance(ORDERS)
    assert terminal.getvalue().count(HARMLESS) > 2
    assert not {"\x07", "\x08", "\x9b"} & set(terminal.getvalue())
    assert "\x1b[2J" not in terminal.getvalue()


@pytest.mark.skipif(os.name != "posix", reason="needs such names")
def test_names_of_files_in_errors_and_tables_of_the_command(
    run_cli: Callable[..., tuple[int, str, str]], trained_run: Path, tmp_path: Path
) -> None:
    status, _, err = run_cli("predict", trained_run, tmp_path / ORDERS)
    assert (status, HARMLESS in err, "\x1b" in err) == (1, True, False)
    save_image(tmp_path / "photos" / ORDERS)
    (tmp_path / "photos" / f"b{ORDERS}").write_bytes(b"no image")
    status, out, err = run_cli("predict", trained_run, tmp_path / "photos")
    assert (status, HARMLESS in out, HARMLESS in err) == (0, True, True)
    assert not {"\x07", "\x1b", "\x9b"} & {*out, *err}


def test_a_program_that_reads_along_gets_lines_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(module, "console", Console(file=written, soft_wrap=True))
    assert list(module.track([1, 2, 3], "embedding images", total=3)) == [1, 2, 3]
    assert written.getvalue() == "", "a log file gets none"
    monkeypatch.setenv("NEWKINDS_CHILD", "1")
    monkeypatch.setattr(module, "LINE_EVERY", 0)
    assert list(module.track([1, 2, 3], "embedding images", total=3)) == [1, 2, 3]
    lines = written.getvalue().splitlines()
    assert lines == [f"embedding images: {done} of 3, about 0 s to go" for done in (1, 2)]
    with module.show_only_bars():
        assert list(module.track([1, 2], "training", total=2)) == [1, 2]
    assert written.getvalue().splitlines()[2:] == ["training: 1 of 2, about 0 s to go"], "lines that are a bar"
