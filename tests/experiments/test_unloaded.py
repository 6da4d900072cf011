"""Rows of plugins that were not loaded do not vanish from a table."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from newkinds import plugins
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.errors import NewkindsError
from newkinds.experiments.bench import bench
from newkinds.methods import METHODS

PLUGIN = """
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.organizers.adapter import Adapter
from newkinds.methods import METHODS
from newkinds.methods.simgcd import SimGCD

@METHODS.register("vanishing")
class Vanishing(SimGCD):
    pass

@ORGANIZERS.register("not-there")
class NotThere(Adapter):
    pass
"""
SMALL: dict[str, Any] = {
    "data": {"categories": 4, "per_category": 8},
    "train": {"epochs": 1, "batch_size": 16},
    "method": {"projection_hidden": 32},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Runs of a method and an organizer of a plugin, and their table, of a command that had loaded it."""
    folder = tmp_path_factory.mktemp("unloaded")
    (folder / "vanishing_parts.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(METHODS, "_entries", dict(METHODS._entries))
        patch.setattr(ORGANIZERS, "_entries", dict(ORGANIZERS._entries))
        patch.setattr(plugins, "_loaded", {})
        plugins.load_plugin(folder / "vanishing_parts.py")
        grid: dict[str, Any] = {"methods": ["simgcd", "vanishing"], "organizers": ["none", "not-there"]}
        benched = bench(
            "ablation", folder / "runs", data=["creatures"], **grid, baselines=["none"], settings=SMALL, style="csv"
        )
        assert benched.failed == []
    return folder, benched.text


def figures(text: str) -> dict[tuple[str, ...], str]:
    """Method, organizer and measure → the mean."""
    header, *lines = (line.split(",") for line in text.splitlines())
    keys = ("method", "organizer", "measure")
    return {tuple(line[header.index(key)] for key in keys): line[header.index("mean")] for line in lines}


def test_rows_of_a_plugin_are_read_from_their_files(runs: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder, text = runs
    assert "vanishing" not in METHODS
    collected = bench("ablation", folder / "runs", data=["creatures"], only_collect=True, style="csv").text
    assert figures(collected) == figures(text)
    assert {method for method, *_ in figures(text)} == {"simgcd", "vanishing", "average"}
    said = capsys.readouterr().err
    plugin = folder / "vanishing_parts.py"
    assert f"2 run(s) in {folder / 'runs'} (creatures-vanishing-none-seed0, creatures-vanishing-not-there-s" in said
    assert f"need 'vanishing' of {plugin}, which is not loaded" in said
    assert f"add --plugin {plugin}" in said
    table = bench("ablation", folder / "runs", data=["creatures"], only_collect=True).text
    assert "| vanishing + not-there " in table


def test_rows_of_a_plugin_can_be_named(runs: tuple[Path, str]) -> None:
    """To be shown; to be run they need the plugin, which the message names."""
    folder, _ = runs

    def shown(**names: Any) -> list[str]:
        found = bench("ablation", folder / "runs", data=["creatures"], only_collect=True, **names)
        return [row.name for row in found.rows]

    assert shown(methods=["vanishing"]) == ["vanishing", "vanishing + not-there"]
    assert shown(methods=["vanishing"], organizers=["not-there"]) == ["vanishing + not-there"]
    assert sorted(shown(methods=["simgcd", "vanishing"], organizers=["none"])) == ["SimGCD", "vanishing"]
    assert shown(methods=["simgcd", "vanishing"], against="vanishing"), "it may also be what others are compared with"
    for named in ({"methods": ["vanishing"]}, {"organizers": ["not-there"]}, {"against": "vanishing"}):
        with pytest.raises(NewkindsError, match=f"add --plugin {re.escape(str(folder / 'vanishing_parts.py'))}"):
            bench("ablation", folder / "runs", data=["creatures"], **named)  # type: ignore[arg-type]
    with pytest.raises(NewkindsError, match="there is no method 'vanished'"):
        shown(methods=["vanished"])


def test_no_code_of_a_plugin_is_run_to_collect(
    runs: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the plugin have to be there any more."""
    folder, text = runs
    (folder / "vanishing_parts.py").rename(tmp_path / "elsewhere.py")
    monkeypatch.delitem(sys.modules, "vanishing_parts")
    collected = bench("ablation", folder / "runs", data=["creatures"], only_collect=True, style="csv").text
    assert figures(collected) == figures(text)
    assert "vanishing_parts" not in sys.modules
