"""The command line: verbs, help, and errors without tracebacks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conftest import save_image
from layouts import lay_out_cifar10
from newkinds.cli import VERBS, WORK
from newkinds.verbs.listing import PARTS, lines_of, read_off, registered

Cli = Callable[..., tuple[int, str, str]]
TINY = (
    "--set", "data.categories=4", "--set", "data.per_category=8", "--set", "train.batch_size=16",
    "--set", "method.projection_hidden=32",
)  # fmt: skip


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; from newkinds.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'timm', 'rich', 'yaml')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "newkinds discover photos/" in done.stdout


@pytest.mark.parametrize(
    "command",
    ["list", "list organizers", "cache list", "data check", "log x", "report x", "next x", "studio x"],
)
def test_what_needs_no_network_imports_no_torch(command: str) -> None:
    code = f"import sys; from newkinds.cli import main\nmain({command.split()!r})\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_list_without_torch_is_what_is_registered() -> None:
    for kind, parts in PARTS.items():
        assert lines_of(kind) == registered(parts), kind
        if parts.has_torch:
            assert sorted(read_off(parts)) == registered(parts), kind


def test_help_shows_what_people_do_and_each_verb_by_one_example(run_cli: Cli) -> None:
    _, out, _ = run_cli("--help")
    works = [line.rstrip(":") for line in out.splitlines() if re.fullmatch(r"[a-z ]+:", line) and line != "options:"]
    assert works == list(WORK)
    shown = [line.split() for line in out.splitlines() if line.startswith("  newkinds ")]
    for name in VERBS:
        words = ["newkinds", *name.split()]
        assert [line[: len(words)] for line in shown].count(words) == 1, name
    assert all(len(line) < 120 for line in out.splitlines())


def test_vectors_are_worked_on_without_what_only_networks_need(tmp_path: Path) -> None:
    features, labels = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32), np.arange(40) % 4
    np.save(tmp_path / "vectors.npy", features)
    (tmp_path / "labels.csv").write_text("label\n" + "".join(f"{c if c < 2 else ''}\n" for c in labels))
    code = (
        "import sys, newkinds\n"
        "newkinds.train, newkinds.evaluate, newkinds.predict, newkinds.check, newkinds.assign, newkinds.refine\n"
        "newkinds.CategoryDiscovery(n_categories=4).fit([[float(i), float(i % 3)] for i in range(12)])\n"
        "newkinds.discover('vectors.npy', 'out', labels='labels.csv', k=4, time='1s')\n"
        "heavy = {'timm', 'torchvision', 'torch._dynamo', 'sympy', 'sklearn.cluster', 'matplotlib'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "verb", ["demo", "train", "discover", "eval", "figures", "predict", "data", "data check", "list"]
)
def test_every_verb_has_help_with_examples(run_cli: Cli, verb: str) -> None:
    status, out, _ = run_cli(*verb.split(), "--help")
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
    assert "training backbone" in err
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
    assert "finished already" in err
    save_image(tmp_path / "a.png")
    status, out, _ = run_cli("predict", run, tmp_path / "a.png")
    assert status == 0
    assert out.startswith("path,category,category_id,is_new,confidence,unlike\n")
    assert run_cli("predict", run, tmp_path / "a.png", "--out", tmp_path / "p.csv")[0] == 0
    assert (tmp_path / "p.csv").read_text() == out


def test_a_benchmark_is_found_by_variable_or_data_root_and_may_move(
    run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out_cifar10(tmp_path / "here")
    arguments = ("train", "cifar10", "--out", tmp_path / "run", "--epochs", 1, "--set", "train.batch_size=16")
    with monkeypatch.context() as begun_with:
        begun_with.setenv("NEWKINDS_DATA", str(tmp_path / "here"))
        status, _, err = run_cli(*arguments)
    assert status == 0, err
    assert f"root: {tmp_path / 'here'}" in (tmp_path / "run" / "config.yaml").read_text()
    monkeypatch.delenv("NEWKINDS_DATA", raising=False)
    status, out, _ = run_cli("eval", tmp_path / "run")
    assert status == 0
    assert re.search(r"^class list +cifar10 e2d5396c355b8307$", out, re.MULTILINE)
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "run" / "assignments.csv").unlink()  # so that the images are needed again
    assert run_cli("eval", tmp_path / "run")[0] == 1
    status, _, err = run_cli(*arguments, "--data-root", tmp_path / "there")
    assert status == 0, err
    assert "trained already" in err
    status, _, err = run_cli("eval", tmp_path / "run")
    assert status == 0, err


@pytest.mark.parametrize("kind", ["folder", "csv"])
def test_a_sorted_folder_or_list_becomes_a_benchmark(run_cli: Cli, tmp_path: Path, kind: str) -> None:
    data = tmp_path / "animals"
    names = [f"{kind}/{i}.png" for kind in ("ant", "bee", "cow", "dog") for i in range(6)]
    for name in names:
        save_image(data / name)
    if kind == "csv":
        data = data / "list.csv"
        data.write_text("path,label\n" + "".join(f"{name},{name[:3]}\n" for name in names))
    recipe = tmp_path / "split.yaml"
    recipe.write_text(
        f"data: {{name: {kind}, path: '{data}', known: [cow, bee]}}\ntrain: {{epochs: 1, batch_size: 8}}\n"
    )
    status, _, err = run_cli("train", "--out", tmp_path / "a", "--recipe", recipe, "--set", "data.fraction=0.75")
    assert status == 0, err
    status, out, _ = run_cli("eval", tmp_path / "a")
    assert status == 0
    assert "24, of which 9 labelled" in out
    assert "2 known of 4" in out
    assert "15 unlabelled training images" in out
    # the same without a recipe, and by share
    known = ("--set", "data.known=[cow, bee]", "--set", "data.fraction=0.75")
    short = ("--epochs", 1, "--set", "train.batch_size=8")
    status, _, err = run_cli("train", data, "--out", tmp_path / "a", *known, *short)
    assert (status, "trained already" in err) == (0, True), err
    assert run_cli("train", data, "--out", tmp_path / "b", "--set", "data.known=0.5", *short)[0] == 0
    assert "ant, bee" in (tmp_path / "b" / "README.md").read_text()


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
        (["train", "creatures", "--k", "100000"], "--k 100000 is too large"),
        (["train"], "no data given"),
        (["train", "creatures", "--epochs", "-1"], "at least 0"),
        (["train", "creatures", "--data-root", "."], "no setting 'data.root'"),
        (["train", "cub", "--data-root", "nowhere"], "nowhere, in which CUB-200-2011 should be"),
        (["train", "cub", "--set", "data.fractoin=1"], "Did you mean 'fraction'"),
    ],
)
def test_mistakes_are_one_clear_line(run_cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    status, _, err = run_cli(*arguments, "--out", tmp_path / "run")
    assert status == 1
    assert message in err
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("error: ")] == [err.splitlines()[-1]]


@pytest.mark.parametrize(
    ("command", "usage", "message"),
    [
        ("discover photos --k six", "newkinds discover [options] DATA", "error: --k six is not a whole number"),
        ("discover photos --tme 3m", "newkinds discover [options] DATA", "no option --tme. Did you mean '--time'?"),
        ("train photos", "newkinds train [options] DATA --out RUN", "required: --out"),
        ("undo a b", "newkinds undo [options] RUN", "b is one argument too many"),
        ("split a b --into=2.5", "newkinds split [options] RUN CATEGORY", "--into 2.5 is not a whole number"),
        ("data chek", "newkinds data [-h] ACTION ...", "no action chek. Did you mean 'check'?"),
        ("dicover photos", "newkinds [-h] [--version] [--debug] VERB …", "no verb dicover. Did you mean 'discover'?"),
    ],
)
def test_a_wrong_command_is_told_what_to_type_instead(run_cli: Cli, command: str, usage: str, message: str) -> None:
    status, _, err = run_cli(*command.split())
    assert status == 2
    first, said, where = err.splitlines()
    assert first == f"usage: {usage}"
    assert message in said
    assert where == f"see {said.partition(': error')[0]} --help"


def test_without_images_they_are_asked_for(run_cli: Cli) -> None:
    status, _, err = run_cli("discover")
    assert status == 1
    assert "say which images" in err


def test_predict_with_nothing_readable_fails(run_cli: Cli, trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"nope")
    status, out, err = run_cli("predict", trained_run, tmp_path / "a.png")
    assert status == 1
    assert "a.png skipped: not an image" in err
    assert out == "path,category,category_id,is_new,confidence,unlike\n"


def test_a_truth_of_other_images_is_said_to_be_one(run_cli: Cli, trained_run: Path, tmp_path: Path) -> None:
    save_image(tmp_path / "sorted" / "ant" / "elsewhere.png")
    status, _, err = run_cli("eval", trained_run, "--truth", tmp_path / "sorted")
    assert status == 1
    assert "what --truth names has no true class of the unlabelled images" in err


def test_debug_shows_where_it_happened(run_cli: Cli, tmp_path: Path) -> None:
    from newkinds.errors import NewkindsError

    with pytest.raises(NewkindsError):
        run_cli("--debug", "eval", tmp_path)
