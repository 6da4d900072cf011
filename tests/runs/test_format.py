"""A run that another version made is refused in one sentence, by whatever reads it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import newkinds
from newkinds.errors import NewkindsError
from newkinds.runs.directory import FORMAT, RunDirectory

READERS: dict[str, Callable[[Path], Any]] = {
    "Discovery.read": newkinds.Discovery.read,
    "load": newkinds.load,
    "evaluate": newkinds.evaluate,
    "report": newkinds.report,
    "assign": newkinds.assign,
}


def test_a_run_says_its_format(trained_run: Path) -> None:
    assert json.loads((trained_run / "protocol.json").read_text())["format"] == FORMAT


@pytest.mark.parametrize("there", [None, 1, FORMAT + 1, "x" * 1000])
def test_a_run_of_another_format_is_refused_in_one_sentence(there: object, trained_run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(trained_run, tmp_path / "copy"))
    run = RunDirectory(copy)
    record = run.read_json("protocol.json")
    run.write_json("protocol.json", {**record, "format": there})
    for name, read in READERS.items():
        with pytest.raises(NewkindsError, match="copy was made by another version of newkinds") as said:
            read(copy)
        assert len(str(said.value)) < 400, name
