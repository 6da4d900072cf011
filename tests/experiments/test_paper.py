"""The paper's tables: reported and ours side by side, cells not run left empty."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import save_image
from layouts import lay_out_cub
from newkinds.data import load_table
from newkinds.data.table import Table
from newkinds.errors import NewkindsError
from newkinds.evaluation.judge import evaluate
from newkinds.experiments.grid import COLUMNS, Cell, Outcome, read_outcome
from newkinds.experiments.runs import bench, collect
from newkinds.experiments.styles import STYLES, latex, markdown, tidy_csv
from newkinds.experiments.tables import TABLES, entries, reported
from newkinds.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
SMALL = ("--backbone", "tiny", "--epochs", "1", "--set", "train.batch_size=64")


def outcomes_of(table: str, cells: dict[tuple[str, str, str, int], float]) -> dict[Cell, Outcome]:
    measures = TABLES[table].measures
    return {
        Cell(*key): Outcome({**dict.fromkeys(COLUMNS, 1.0), **dict.fromkeys(measures, value)}, {"seed": str(key[3])})
        for key, value in cells.items()
    }


def lay_out_birds(root: Path) -> None:
    """CUB's layout with images that differ."""
    lay_out_cub(root)
    for image in root.rglob("*.jpg"):
        save_image(image, size=(16, 16))


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.reports])
def test_every_reported_figure_has_its_place_in_the_table(name: str) -> None:
    table = TABLES[name]
    count = sum(len(f) for sets in reported()[name].values() for m in sets.values() for f in m.values())
    found = entries(table, {})
    assert sum(entry.reported is not None for entry in found) == count > 0
    assert all(entry.ours is None for entry in found)


def test_gains_of_the_paper_are_those_it_states() -> None:
    """+4.0 points on new classes of fine-grained sets and +2.0 on coarse ones, on average over the four hosts."""
    for name, gain in (("fine", 4.0), ("coarse", 2.0)):
        hosts = [m for sets in reported()[name].values() for m in sets.values() if "cpf" in m]
        assert len(hosts) == 12
        mean = sum(m["cpf"]["new"] - m["none"]["new"] for m in hosts) / len(hosts)
        assert mean == pytest.approx(gain, abs=0.06)


def test_ours_stand_beside_reported_with_spread_seeds_and_gain() -> None:
    outcomes = outcomes_of(
        "fine",
        {
            ("cub", "simgcd", "none", 0): 60.0,
            ("cub", "simgcd", "none", 1): 62.0,
            ("cub", "simgcd", "cpf", 0): 64.5,
        },
    )
    text = markdown(TABLES["fine"], outcomes)
    host = re.search(r"^\| SimGCD +\|(.*)\|$", text, re.MULTILINE)
    with_cpf = re.search(r"^\| SimGCD \+ CPF +\|(.*)\|$", text, re.MULTILINE)
    assert host is not None
    assert with_cpf is not None
    assert [c.strip() for c in host[1].split("|")] == [
        "61.2", "61.0 ± 1.4", "", "65.8", "61.0 ± 1.4", "", "58.9", "61.0 ± 1.4", "", "2",
    ]  # fmt: skip
    assert [c.strip() for c in with_cpf[1].split("|")][:3] == ["63.9", "64.5", "+4.5"], "against the host's seed 0"
    assert "seed  SimGCD: 0; 1 · SimGCD + CPF: 0" in text
    assert text.count("no run yet") == 2

    rows = list(csv.DictReader(io.StringIO(tidy_csv(TABLES["fine"], outcomes))))
    assert len(rows) == 3 * 5 * 2 * 3
    wanted = {"data": "cub", "method": "simgcd", "organizer": "cpf", "measure": "new"}
    (row,) = [row for row in rows if wanted.items() <= row.items()]
    figures = [row[name] for name in ("reported", "mean", "std", "seeds", "gain_over_host")]
    assert figures == ["63.1", "64.5", "", "1", "4.5"]
    assert sum(r["mean"] == "" for r in rows) == len(rows) - 6

    tex = latex(TABLES["fine"], outcomes)
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 3
    assert r"SimGCD + CPF & 63.9 & 64.5 & +4.5 &" in tex
    body = re.findall(r"^(?!%|\\).+$", tex, re.MULTILINE)
    assert {line.count("&") for line in body} == {10}
    assert all(line.endswith(r"\\") for line in body)
    assert "±" not in tex
    assert "%" not in re.sub(r"\\%|^%.*$", "", tex, flags=re.MULTILINE)


def test_figures_on_test_images_stand_apart_and_beside_nothing_reported() -> None:
    """Only runs that have them count: of SimGCD one of two seeds."""
    outcomes = outcomes_of(
        "fine",
        {
            ("cub", "simgcd", "none", 0): 60.0,
            ("cub", "simgcd", "none", 1): 62.0,
            ("cub", "simgcd", "cpf", 0): 64.5,
            ("cars", "simgcd", "none", 0): 50.0,
        },
    )
    for organizer, value in (("none", 70.0), ("cpf", 73.5)):
        cell = Cell("cub", "simgcd", organizer, 0)
        outcomes[cell] = replace(outcomes[cell], test={"all": value, "old": value + 1, "new": None})
    text = markdown(TABLES["fine"], outcomes)
    assert text.count("On the test images:") == 1
    before, on_test = text.split("## aircraft")[0].split("On the test images:")
    assert "| SimGCD + CPF  |           63.9 |       64.5 | +4.5 |" in before
    split = [[c.strip() for c in line.split("|")[1:-1]] for line in on_test.splitlines() if line.startswith("|")]
    rows = {name: figures for name, *figures in split}
    assert rows[""] == ["All %", "Δ", "Old %", "Δ", "New %", "Δ", "seeds"]
    assert rows["SimGCD"] == ["70.0", "", "71.0", "", "–", "", "1"]
    assert rows["SimGCD + CPF"] == ["73.5", "+3.5", "74.5", "+3.5", "–", "", "1"]
    assert rows["CMS"] == [""] * 7

    lines = list(csv.DictReader(io.StringIO(tidy_csv(TABLES["fine"], outcomes))))
    assert len(lines) == 2 * 3 * 5 * 2 * 3
    of_cpf = {"data": "cub", "method": "simgcd", "organizer": "cpf", "measure": "all"}
    figures = {
        line["evaluated"]: [line[name] for name in ("reported", "mean", "seeds", "gain_over_host")]
        for line in lines
        if of_cpf.items() <= line.items()
    }
    assert figures == {"unlabelled": ["63.9", "64.5", "1", "4.5"], "test": ["", "73.5", "1", "3.5"]}
    assert all(line["reported"] == "" for line in lines if line["evaluated"] == "test")

    tex = latex(TABLES["fine"], outcomes)
    assert tex.count(r"\begin{tabular}") == 4
    on_test = tex.split("% Fine-grained data sets: cub, on the test images")[1]
    assert r"SimGCD + CPF & 73.5 & +3.5 & 74.5 & +3.5 & -- &  & 1 \\" in on_test

    for name in ("count", "cost"):
        assert {line["evaluated"] for line in csv.DictReader(io.StringIO(tidy_csv(TABLES[name], outcomes)))} == {""}


@pytest.mark.parametrize("style", list(STYLES))
def test_a_table_of_nothing_is_printed_empty(style: str, tmp_path: Path) -> None:
    for name, table in TABLES.items():
        data = None if table.data else ["creatures"]
        assert bench(name, tmp_path, data=data, only_collect=True, style=style)  # type: ignore[arg-type]


def test_any_data_may_be_compared_on(run_cli: Cli, tmp_path: Path) -> None:
    """A folder of sorted images, half of whose classes are known: every host row, with and without an organizer."""
    birds = tmp_path / "birds[1].v2"  # a name that is none of glob's patterns
    for kind in range(4):
        for number in range(6):
            save_image(birds / f"kind{kind}" / f"{number}.png", colour=(60 * kind, 40 * number, 90))
    settings = ("--set", "data.known=0.5", "--set", "train.batch_size=8", "--epochs", "1", "--cache-views", "0")
    command = ("bench", "plugin", "--out", str(tmp_path / "runs"), "--data", str(birds))
    code, text, _ = run_cli(*command, "--methods", "simgcd", "--organizers", "none,patches", *settings)
    assert code == 0
    assert "## birds[1].v2" in text
    header, *rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert "reported" not in header
    assert "count error" in header
    of_row = {name.strip(): [cell.strip() for cell in cells] for _, name, *cells, _ in (row.split("|") for row in rows)}
    assert re.fullmatch(r"[\d.]+", of_row["SimGCD"][0])
    assert re.fullmatch(r"[+\N{MINUS SIGN}][\d.]+", of_row["SimGCD + PATCHES"][1])
    assert list(of_row) == ["SimGCD", "SimGCD + PATCHES"]
    assert run_cli(*command, "--collect")[1] == text
    shutil.copytree(birds, tmp_path / "elsewhere" / birds.name)
    elsewhere = ("--data", str(tmp_path / "elsewhere" / birds.name))
    _, out, err = run_cli("bench", "plugin", "--out", str(tmp_path / "runs"), "--collect", *elsewhere)
    assert "holds another run" in err
    assert "no run yet" in out
    with pytest.raises(NewkindsError, match=r"two of the data are called 'birds\[1\].v2'"):
        bench("plugin", tmp_path / "runs", data=[str(birds), str(tmp_path / "elsewhere" / birds.name)])
    shutil.copytree(birds, birds.with_suffix(".v3"))
    both = bench("plugin", tmp_path / "runs", data=[str(birds), str(birds.with_suffix(".v3"))], only_collect=True)
    assert both.text.count("## birds[1].v") == 2
    save_image(birds / "unlabeled" / "7.png", colour=(1, 2, 3))
    code, _, err = run_cli(*command, "--out", str(tmp_path / "other"), "--methods", "simgcd", *settings[2:])
    assert code == 1
    assert "true classes of 1 unlabelled images are not known" in " ".join(err.split())
    assert not list((tmp_path / "other").iterdir()), "said before anything is trained"
    with pytest.raises(NewkindsError, match="say which data the table plugin is for"):
        bench("plugin", tmp_path / "runs")
    with pytest.raises(NewkindsError, match="there is no folder, CSV file or data set 'bird'"):
        bench("plugin", tmp_path / "runs", data=["bird"])


def test_unknown_table_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="fine"):
        bench("fin", tmp_path)


def test_cub_runs_through_the_command_line_resumes_and_is_collected(run_cli: Cli, tmp_path: Path) -> None:
    lay_out_birds(tmp_path / "data")
    out = tmp_path / "runs"
    grid = ("--data", "cub,cars", "--methods", "simgcd", "--organizers", "none")
    command = ("bench", "fine", "--out", out, *grid, "--data-root", tmp_path / "data", *SMALL)
    status, text, err = run_cli(*command)
    assert status == 1, "cars could not be run"
    assert err.count("cars is left out") == 1
    row = re.search(r"^\| SimGCD +\| +61.2 \| +([\d.]+) \|", text, re.MULTILINE)
    assert row is not None
    folder = out / "cub-simgcd-none-seed0"
    outcome = read_outcome(folder)
    assert outcome is not None
    assert outcome.figures["all"] == pytest.approx(float(row[1]), abs=0.05)
    assert outcome.figures["inference_seconds"] > 0  # type: ignore[operator]
    assert Run(folder).config().method["memax_weight"] == 2.0, "the recipe's"
    assert "class list" in text
    assert "not on test images: this copy of CUB-200-2011 lacks 5,594 of its 5,794 test images" in text
    assert "On the test images" not in text

    status, again, err = run_cli(*command)
    assert status == 1
    assert "is finished already" in err
    assert again == text
    status, collected, err = run_cli("bench", "fine", "--out", out, "--collect")
    assert (status, collected) == (0, text)

    (folder / "evaluation.json").unlink()  # as if it had been stopped there
    assert collect(TABLES["fine"], out) == {}


def test_a_cell_that_fails_does_not_stop_the_others(run_cli: Cli, tmp_path: Path) -> None:
    lay_out_birds(tmp_path / "data")
    foreign = Cell("cub", "simgcd", "none", 0).folder(tmp_path / "runs")
    foreign.mkdir(parents=True)
    (foreign / "mine.txt").write_text("not a run")
    status, _, err = run_cli(
        "bench", "fine", "--out", tmp_path / "runs", "--data", "cub", "--methods", "simgcd", "--seeds", "0", "1",
        "--organizers", "none", "--data-root", tmp_path / "data", *SMALL,
    )  # fmt: skip
    assert status == 1
    assert "seed 0 failed" in err
    assert list(collect(TABLES["fine"], tmp_path / "runs")) == [Cell("cub", "simgcd", "none", 1)]
    assert (foreign / "mine.txt").is_file()


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished cell: SimGCD on a small copy of CUB, seed 0."""
    root = tmp_path_factory.mktemp("grid")
    lay_out_birds(root / "data")
    settings = [{"train": {"epochs": 1, "batch_size": 64}}]
    benched = bench(
        "fine", root / "runs", data=["cub"], methods=["simgcd"], organizers=["none"], backbone="tiny",
        data_root=root / "data", settings=settings,
    )  # fmt: skip
    assert benched.failed == []
    return root


def test_a_run_with_other_settings_is_not_the_one_that_was_asked_for(one_run: Path, tmp_path: Path) -> None:
    """Its figures stand in nobody's way: a cell that was run just now stays in the table, and the other is named."""
    shutil.copytree(one_run / "runs", tmp_path / "runs")
    options = {"data": ["cub"], "methods": ["simgcd"], "backbone": "tiny", "data_root": one_run / "data"}
    two_epochs = [{"train": {"epochs": 2, "batch_size": 64}}]
    benched = bench("fine", tmp_path / "runs", organizers=["none", "patches"], settings=two_epochs, **options)
    assert benched.failed == ["SimGCD on cub, seed 0"]
    of_cub = benched.text.split("## aircraft")[0].splitlines()
    (host,) = [line for line in of_cub if line.startswith("| SimGCD  ")]
    (patches,) = [line for line in of_cub if line.startswith("| SimGCD + PATCHES ")]
    assert host.split("|")[3].strip() == "", "one epoch is not two"
    assert re.fullmatch(r"[\d.]+", patches.split("|")[3].strip())


def copied(one_run: Path, tmp_path: Path, **names: str) -> Path:
    """The same run several times, under these names, with its settings changed to fit: {"none-seed1": "old=new"}."""
    there = Cell("cub", "simgcd", "none", 0).folder(one_run / "runs")
    for name, changes in names.items():
        folder = tmp_path / f"cub-simgcd-{name.replace('_', '-')}"
        shutil.copytree(there, folder)
        text = (folder / "config.yaml").read_text()
        for change in filter(None, changes.split(";")):
            before, after = change.split(">")
            assert before in text
            text = text.replace(before, after)
        (folder / "config.yaml").write_text(text)
    return tmp_path


def test_runs_with_other_settings_are_not_averaged(
    one_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = copied(
        one_run, tmp_path,
        none_seed0="",
        none_seed1="\n  seed: 0>\n  seed: 1",
        none_seed2="\n  seed: 0>\n  seed: 2;memax_weight: 2.0>memax_weight: 9.0",
        patches_seed0="name: none>name: patches;momentum: 0.9>momentum: 0.8",
    )  # fmt: skip
    found = collect(TABLES["ablation"], runs)
    assert sorted((cell.organizer, cell.seed) for cell in found) == [("none", 0), ("none", 1)]
    told = capsys.readouterr().err
    usual = "has other settings than SimGCD on cub, seed 0"
    assert f"SimGCD on cub, seed 2 {usual} (method.memax_weight is 9.0, not 2.0)" in told
    assert f"SimGCD + PATCHES on cub, seed 0 {usual} (train.momentum is 0.8, not 0.9)" in told
    asked_now = [Cell("cub", "simgcd", "none", 2)]
    assert list(collect(TABLES["ablation"], runs, preferred=asked_now)) == asked_now


def test_runs_on_other_images_or_weights_are_not_averaged(one_run: Path, tmp_path: Path) -> None:
    seeds = {f"none_seed{seed}": f"\n  seed: 0>\n  seed: {seed}" for seed in (1, 2, 3)}
    runs = copied(one_run, tmp_path, none_seed0="", **seeds)
    for seed, name in ((2, "split"), (3, "weights")):
        run = Run(runs / f"cub-simgcd-none-seed{seed}")
        run.write_json("protocol.json", {**run.read_json("protocol.json"), name: "another"})
    assert sorted(cell.seed for cell in collect(TABLES["fine"], runs)) == [0, 1]


def test_runs_of_versions_without_a_cache_saw_fresh_views(one_run: Path, tmp_path: Path) -> None:
    runs = copied(one_run, tmp_path, none_seed0="", none_seed1="\n  seed: 0>\n  seed: 1")
    file = runs / "cub-simgcd-none-seed1" / "config.yaml"
    lines = [line for line in file.read_text().splitlines() if "cache_" not in line]
    file.write_text("\n".join(lines))
    assert Run(file.parent).config().train.cache_views == 0
    assert len(collect(TABLES["fine"], runs)) == 2


def test_an_evaluation_by_another_truth_does_not_enter_the_table(one_run: Path, tmp_path: Path) -> None:
    runs = copied(one_run, tmp_path, none_seed0="")
    folder = runs / "cub-simgcd-none-seed0"
    before = collect(TABLES["fine"], runs)
    with open(folder / "assignments.csv", newline="") as file:
        lines = [f"{row['path']},{row['category']}\n" for row in csv.DictReader(file) if not row["given_label"]]
    (tmp_path / "flattering.csv").write_text("path,label\n" + "".join(lines))
    assert evaluate(folder, tmp_path / "flattering.csv")["metrics"]["acc_all"] == 1.0
    assert collect(TABLES["fine"], runs) == {}
    evaluate(folder)
    assert collect(TABLES["fine"], runs) == before


def test_a_folder_is_not_believed_by_its_name(
    one_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = copied(one_run, tmp_path, none_seed0="", none_seed7="", cpf_seed0="")
    assert list(collect(TABLES["fine"], runs)) == [Cell("cub", "simgcd", "none", 0)]
    told = capsys.readouterr().err
    assert "train.seed is 0 there, not 7" in told
    assert "organizer.name is 'none' there, not 'cpf'" in told


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("evaluation.json", "{"),
        ("evaluation.json", "{}"),
        ("evaluation.json", "[" * 100_000),
        ("evaluation.json", '{"metrics": {"acc_all": "x", "acc_old": 1, "acc_new": 1}, "protocol": {"a": "b"}}'),
        ("evaluation.json", '{"metrics": {"acc_all": true, "acc_old": 1, "acc_new": 1}, "protocol": {"a": "b"}}'),
        ("evaluation.json", '{"metrics": {"acc_all": NaN, "acc_old": 1, "acc_new": 1}, "protocol": {"a": "b"}}'),
        ("evaluation.json", '{"metrics": {"acc_all": 1, "acc_old": 1, "acc_new": 1}, "protocol": []}'),
        ("timing.json", "[]"),
        ("metrics.jsonl", ""),
        ("metrics.jsonl", "junk\n"),
        ("protocol.json", None),
        ("model.safetensors", ""),
        ("config.yaml", "train: 3"),
    ],
)
def test_a_damaged_run_is_named_and_costs_no_other(
    file: str, content: str | None, one_run: Path, tmp_path: Path, run_cli: Cli
) -> None:
    runs = copied(one_run, tmp_path, none_seed0="", none_seed1="\n  seed: 0>\n  seed: 1")
    damaged = runs / "cub-simgcd-none-seed1" / file
    damaged.unlink()
    if content is not None:
        damaged.write_text(content)
    status, text, err = run_cli("bench", "fine", "--out", runs, "--collect")
    assert status == 0
    assert "cub-simgcd-none-seed1" in err
    assert re.search(r"^\| SimGCD +\| +61.2 \| +[\d.]+ \|.* 1 \|$", text, re.MULTILINE)


def test_any_error_of_a_cell_is_told_and_the_others_run(
    one_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = []

    def exhausted(data: str, folder: Path, **_: object) -> None:
        tried.append(folder.name)
        raise MemoryError("CUDA out of memory")

    monkeypatch.setattr("newkinds.experiments.grid.discover", exhausted)
    benched = bench("fine", tmp_path, data=["cub"], methods=["simgcd"], data_root=one_run / "data")
    assert len(tried) == len(benched.failed) == 2
    assert "MemoryError: CUDA out of memory" in capsys.readouterr().err
    assert "no run yet" in str(benched)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--methods", "simgcd,simgdc"), "no method 'simgdc'. Did you mean 'simgcd'"),
        (("--organizers", "cfp"), "no organizer 'cfp'. Did you mean 'cpf'"),
        (("--data", "cifar11"), "no data set 'cifar11'. Did you mean 'cifar1"),
        (("--data", ""), "no data set is named"),
        (("--seeds", "-1"), "seeds are whole numbers"),
        (("--set", "method.name=gcd"), "each cell has its own method.name"),
        (("--set", "train.seed=5"), "each cell has its own train.seed"),
    ],
)
def test_wrong_names_are_said_before_anything_is_run(
    options: tuple[str, str], said: str, one_run: Path, tmp_path: Path, run_cli: Cli
) -> None:
    status, _, err = run_cli("bench", "fine", "--out", tmp_path / "runs", "--data-root", one_run / "data", *options)
    assert status == 1
    assert said in err
    assert not (tmp_path / "runs").exists()


def test_settings_of_one_organizer_wait_for_it_and_wrong_ones_stop_their_cell_alone(
    one_run: Path, tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def refuse(data: str, folder: Path, **_: object) -> None:
        begun.append(folder.name)
        raise NewkindsError("enough")

    monkeypatch.setattr("newkinds.experiments.grid.discover", refuse)
    command = (
        "bench", "fine", "--out", tmp_path, "--data", "cub", "--data-root", one_run / "data", "--seeds", "0", "0",
    )  # fmt: skip
    run_cli(*command, "--methods", "simgcd", "--set", "organizer.cpf={primitives: 8, heads: 8}")
    assert begun == ["cub-simgcd-none-seed0", "cub-simgcd-cpf-seed0"], "each once, although a seed was named twice"
    begun.clear()
    one_host = ("--organizers", "none", "--set", "method.memax_weight=2")
    status, _, err = run_cli(*command, "--methods", "gcd,simgcd", *one_host)
    assert status == 1
    assert begun == ["cub-simgcd-none-seed0"]
    assert "GCD on cub cannot be run: there is no setting 'method.memax_weight'" in err


def test_a_data_set_that_cannot_be_read_stops_no_other(
    one_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = []

    def load(settings: dict[str, object]) -> Table:
        if settings["name"] == "cars":
            raise PermissionError("no entry")
        return load_table(settings)

    monkeypatch.setattr("newkinds.experiments.runs.load_table", load)
    monkeypatch.setattr("newkinds.experiments.grid.discover", lambda data, folder, **_: begun.append(folder.name))
    bench("fine", tmp_path, data=["cars", "cub"], methods=["simgcd"], organizers=["none"], data_root=one_run / "data")
    assert begun == ["cub-simgcd-none-seed0"]
    assert "cars is left out: PermissionError: no entry" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["{}", '{"answer": 1e999, "curve": [], "method": "w", "known": 1, "score_is": "x"}'])
def test_a_damaged_count_costs_no_accuracy(
    one_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    runs = copied(one_run, tmp_path, none_seed0="")
    (runs / "cub-simgcd-none-seed0" / "count.json").write_text(damage)
    assert len(collect(TABLES["fine"], runs)) == 1
    assert "count.json is damaged" in capsys.readouterr().err


def test_nothing_to_collect_is_an_error(tmp_path: Path, run_cli: Cli) -> None:
    status, _, err = run_cli("bench", "fine", "--out", tmp_path / "mistyped", "--collect")
    assert status == 1
    assert "mistyped" in err


def test_csv_carries_the_protocol_and_counts_say_how(one_run: Path, tmp_path: Path) -> None:
    (line, *_) = [
        line
        for line in csv.DictReader(io.StringIO(tidy_csv(TABLES["fine"], collect(TABLES["fine"], one_run / "runs"))))
        if line["mean"]
    ]
    assert line["protocol: split"]
    assert "sha256" in line["protocol: weights"]
    assert "memax_weight 2.0" in line["protocol: method"]
    assert "newkinds" in line["protocol: versions"]
    outcomes = outcomes_of("count", {("cub", "gcd", "none", 0): 231.0})
    (cell,) = outcomes
    outcomes[cell] = replace(outcomes[cell], protocol={"metric": "accuracy", "counting": "brent on the features"})
    text = markdown(TABLES["count"], outcomes)
    assert "brent on the features" in text
    assert "accuracy" not in text
    assert re.search(r"^\| GCD +\| +231 \| +231 \|", text, re.MULTILINE)
