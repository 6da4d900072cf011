"""`newkinds bench --config sweep.yaml`: one file that says all of a table."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from newkinds.errors import NewkindsError
from newkinds.experiments.bench import Benched, bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.paper import TABLES
from newkinds.experiments.row_settings import RowSettings
from newkinds.experiments.sweep_file import LISTS, VALUES, over_sweep, read_sweep
from newkinds.runs.config import Config, resolve
from newkinds.settings import parse_assignment
from newkinds.verbs.choices import options

SWEEP = """
table: plugin
out: runs/creatures
data: [creatures]
methods: [simgcd, cms]
organizers: none, adapter
baselines: none
seeds: [0, 1]
epochs: 7
tune: {train.lr: [0.1, 0.3]}
settings:
  data: {categories: 6}
  train: {batch_size: 64, lr: 0.2}
per_method:
  simgcd: {method: {memax_weight: 3}, train: {momentum: 0.5}}
jobs: 2
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path / "sweep.yaml"


def config_of(arguments: dict[str, Any], method: str) -> Config:
    choices: Any = {name: value for name, value in arguments.items() if name in options()}
    rows = RowSettings(TABLES["plugin"], {"creatures": {"name": "creatures"}}, choices, arguments["per_method"])
    cell = Cell("creatures", method, "none")
    return resolve(*rows(cell), *cell.layers())


def test_a_file_knows_every_argument_of_a_table() -> None:
    of_bench = set(inspect.signature(bench).parameters) - {"choices", "watchers", "only_collect", "again"}
    assert of_bench <= LISTS.keys() | VALUES.keys()
    assert (LISTS.keys() | VALUES.keys()) - of_bench == {"plugins", "log", "recipe", "settings"}


def test_what_is_said_on_the_command_line_wins(sweep: Path) -> None:
    alone = over_sweep(read_sweep(sweep), {})
    assert (alone["methods"], alone["organizers"]) == (["simgcd", "cms"], ["none", "adapter"])
    assert (alone["seeds"], alone["jobs"], alone["tune"]) == ([0, 1], 2, {"train.lr": [0.1, 0.3]})
    simgcd, cms = config_of(alone, "simgcd"), config_of(alone, "cms")
    assert (simgcd.train.epochs, simgcd.train.lr, simgcd.data["categories"]) == (7, 0.2, 6)
    assert (simgcd.method["memax_weight"], simgcd.train.momentum) == (3, 0.5)
    assert cms.train.momentum == 0.9

    texts = ("train.momentum=0.7", "method.simgcd.memax_weight=5", "train.batch_size=32")
    given = {"seeds": [4], "settings": [*map(parse_assignment, texts)], "tune": {"train.lr": [1, 2]}, "epochs": 3}
    both = over_sweep(read_sweep(sweep), given)
    assert (both["seeds"], both["tune"]) == ([4], {"train.lr": [1, 2]})
    simgcd, cms = config_of(both, "simgcd"), config_of(both, "cms")
    assert (simgcd.train.momentum, simgcd.method["memax_weight"]) == (0.7, 5)
    assert (cms.train.momentum, cms.train.batch_size, cms.train.lr, cms.train.epochs) == (0.7, 32, 0.2, 3)


def test_the_documented_file_is_one() -> None:
    docs = Path(__file__).parents[2] / "docs" / "reproducibility.md"
    (text,) = re.findall(r"```yaml\n(# sweep.yaml\n.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    documented = yaml.safe_load(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("newkinds.experiments.sweep_file.read_recipe", lambda file: documented)
        arguments = over_sweep(read_sweep("sweep.yaml"), {})
    arguments["settings"] = [{"data": {"name": "folder", "path": "birds"}}, *arguments["settings"]]
    for method in arguments["methods"]:
        config_of(arguments, method)
    shown = {"table", "out", "data", "methods", "organizers", "seeds", "settings", "per_method", "tune"}
    assert shown <= documented.keys()


def test_recipes_of_the_file_and_of_the_command_line_are_both_taken(sweep: Path, tmp_path: Path) -> None:
    """In their order: nothing is dropped in silence."""
    recipes = ("{lr: 0.5, momentum: 0.1}", "{momentum: 0.2, weight_decay: 0.3}", "{weight_decay: 0.4}")
    for number, text in enumerate(recipes):
        (tmp_path / f"{number}.yaml").write_text(f"train: {text}\n")
    first, second, third = (str(tmp_path / f"{number}.yaml") for number in range(3))
    sweep.write_text(f"table: plugin\nout: runs\ndata: creatures\nrecipe: [{first}, {second}]\n")
    train = config_of(over_sweep(read_sweep(sweep), {"recipe": [third]}), "simgcd").train
    assert (train.lr, train.momentum, train.weight_decay) == (0.5, 0.2, 0.4)


@pytest.mark.parametrize(("text", "said"), [
    ("methds: [simgcd]", "a table has no 'methds'. Did you mean 'methods'?"),
    ("seeds: [zero]", "'seeds' must be a whole number, not 'zero'"),
    ("settings: {trian: {lr: 1}}", "no section 'trian' among the settings. Did you mean 'train'?"),
    ("per_method: {simgcd: 3}", "'per_method' must hold the settings of methods by name"),
    ("tune: [0.1]", "'tune' must hold settings by name"),
    ("epochs: [1, 2]", "'epochs' must be a single value"),
    ("jobs: many", "'jobs' must be a whole number"),
])  # fmt: skip
def test_mistakes_in_the_file_are_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(text)
    with pytest.raises(NewkindsError, match=re.escape(said)) as error:
        read_sweep(tmp_path / "wrong.yaml")
    assert str(tmp_path / "wrong.yaml") in str(error.value)


def test_the_command_takes_the_file(sweep: Path, run_cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a plugin that it names; only what no file says has to be typed."""
    asked: dict[str, Any] = {}

    def remember(table: str, out: str, **arguments: Any) -> Benched:
        asked.update(arguments, table=table, out=out)
        return Benched("the table", [], [], busy=["a run"])

    monkeypatch.setattr("newkinds.experiments.bench.bench", remember)
    loaded: list[str] = []
    monkeypatch.setattr("newkinds.plugins.load_plugin", loaded.append)
    sweep.write_text(f"{SWEEP}plugins: [mine.py]\n")
    status, text, said = run_cli("bench", "--config", sweep, "--no-wait", "--out", tmp_path)
    assert (status, text.strip()) == (0, "the table")
    assert (asked["table"], asked["out"], asked["wait"], asked["jobs"]) == ("plugin", str(tmp_path), False, 2)
    assert loaded == ["mine.py"]
    assert f"newkinds bench --config {sweep} --collect" in said
    status, _, said = run_cli("bench", "--methods", "simgcd")
    assert status == 1
    assert "say TABLE and --out FOLDER, or name a file that does: --config FILE" in said
