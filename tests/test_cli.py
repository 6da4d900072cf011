"""The command line: verbs, help, and errors without tracebacks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import save_image

Cli = Callable[..., tuple[int, str, str]]
TINY = ("--set", "data.categories=4", "--set", "data.per_category=8", "--set", "train.batch_size=16")


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; from newkinds.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'timm', 'rich', 'yaml')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "examples:" in done.stdout


@pytest.mark.parametrize("verb", ["demo", "train", "discover", "eval", "predict", "list"])
def test_every_verb_has_help_with_examples(run_cli: Cli, verb: str) -> None:
    status, out, _ = run_cli(verb, "--help")
    assert status == 0
    assert f"newkinds {verb}" in out.split("examples:")[1]


def test_no_verb_shows_the_help(run_cli: Cli) -> None:
    status, out, _ = run_cli()
    assert status == 2
    assert "discover" in out


def test_version(run_cli: Cli) -> None:
    assert re.fullmatch(r"newkinds \d+\.\d+\.\d+\n", run_cli("--version")[1])


def test_list(run_cli: Cli) -> None:
    status, out, _ = run_cli("list")
    assert status == 0
    for name in ("simgcd", "cpf", "patches", "none", "tiny", "creatures"):
        assert re.search(rf"^  {name} +\S", out, re.MULTILINE), name
    assert "simgcd" not in run_cli("list", "organizers")[1]


def test_train_eval_discover_predict(run_cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    status, out, err = run_cli("train", "creatures", "--out", run, "--organizer", "cpf", "--epochs", 1, *TINY)
    assert status == 0, err
    assert "trainable parameters: backbone" in err
    assert str(run) in out
    status, out, _ = run_cli("eval", run)
    assert status == 0
    assert re.search(r"ACC \(v2.*\|\s+\d", out)
    assert "last epoch" in out
    status, out, _ = run_cli("eval", run, "--json")
    assert 0 <= json.loads(out)["metrics"]["nmi"] <= 1
    status, out, err = run_cli("discover", "creatures", "--out", run, "--organizer", "cpf", "--epochs", 1, *TINY)
    assert status == 0
    assert "32 images assigned" in out
    assert "trained already" in err
    save_image(tmp_path / "a.png")
    status, out, _ = run_cli("predict", run, tmp_path / "a.png")
    assert status == 0
    assert out.startswith("path,category,is_new,confidence\n")
    assert run_cli("predict", run, tmp_path / "a.png", "--out", tmp_path / "p.csv")[0] == 0
    assert (tmp_path / "p.csv").read_text() == out


def test_recipe(run_cli: Cli, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "data: {name: creatures, categories: 4, per_category: 8}\norganizer: {name: patches}\n"
        "train: {epochs: 1, batch_size: 16}\n"
    )
    status, _, err = run_cli("train", "--out", tmp_path / "run", "--recipe", recipe)
    assert status == 0, err
    assert "name: patches" in (tmp_path / "run" / "config.yaml").read_text()
    # the resolved config is itself a recipe for the same run
    again = run_cli("train", "--out", tmp_path / "run", "--recipe", tmp_path / "run" / "config.yaml")
    assert again[0] == 0
    assert "trained already" in again[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nowhere/"], "there is no folder, CSV file or data set 'nowhere/'"),
        (["train", "creatures", "--set", "train.epoch=3"], "Did you mean 'epochs'"),
        (["train", "creatures", "--method", "simgdc"], "Did you mean 'simgcd'"),
        (["train", "creatures", "--organizer", "cpf", "--set", "organizer.heads=7"], "heads"),
        (["train", "creatures", "--backbone", "resnet5000"], "resnet5000"),
        (["train", "creatures", "--weights", "none.pth"], "none.pth"),
        (["train", "creatures", "--device", "toaster"], "toaster"),
        (["train", "creatures", "--k", "100000"], "100000 categories were asked for"),
        (["train"], "no data given"),
        (["train", "creatures", "--epochs", "0"], "at least 1"),
    ],
)
def test_mistakes_are_one_clear_line(run_cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    status, _, err = run_cli(*arguments, "--out", tmp_path / "run")
    assert status == 1
    assert message in err
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("error: ")] == [err.splitlines()[-1]]


def test_predict_with_nothing_readable_fails(run_cli: Cli, trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"nope")
    status, out, err = run_cli("predict", trained_run, tmp_path / "a.png")
    assert status == 1
    assert "a.png passed over: not an image" in err
    assert out == "path,category,is_new,confidence\n"


def test_debug_shows_where_it_happened(run_cli: Cli, tmp_path: Path) -> None:
    from newkinds.errors import NewkindsError

    with pytest.raises(NewkindsError):
        run_cli("--debug", "eval", tmp_path)
