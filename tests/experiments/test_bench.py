"""`newkinds bench`: runs what is asked for, resumes, reports what failed and prints all there is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path

import pytest

from conftest import save_image
from covering import some_of
from layouts import lay_out_birds
from newkinds.data import load_table
from newkinds.data.table import Table
from newkinds.errors import NewkindsError
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import collect, read_outcome
from newkinds.experiments.paper import CONTROLS, TABLES
from newkinds.experiments.styles import STYLES
from newkinds.experiments.tasks import Worked
from newkinds.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
SMALL = (
    "--backbone", "tiny", "--epochs", "1", "--set", "train.batch_size=64", "--set", "backbone.image_size=32",
    "--set", "method.projection_hidden=32", "--baselines", "none",
)  # fmt: skip


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a small copy of CUB."""
    root = tmp_path_factory.mktemp("birds")
    lay_out_birds(root)
    return root


@pytest.mark.parametrize(("name", "style"), some_of(product(TABLES, STYLES), zip(TABLES, cycle(STYLES), strict=False)))
def test_a_table_of_nothing_is_printed_empty(name: str, style: str, tmp_path: Path) -> None:
    data = None if TABLES[name].data else ["creatures"]
    assert bench(name, tmp_path, data=data, only_collect=True, style=style)  # type: ignore[arg-type]


def test_any_data_may_be_compared_on(run_cli: Cli, tmp_path: Path) -> None:
    """A folder of sorted images, half of whose classes are known: every host row, with and without an organizer."""
    birds = tmp_path / "birds[1].v2"  # a name that is none of glob's patterns
    for kind in range(4):
        for number in range(6):
            save_image(birds / f"kind{kind}" / f"{number}.png", colour=(60 * kind, 40 * number, 90))
    settings = ("--set", "data.known=0.5", "--set", "train.batch_size=8", "--epochs", "1", "--baselines", "none")
    command = ("bench", "plugin", "--out", str(tmp_path / "runs"), "--data", str(birds))
    code, text, _ = run_cli(*command, "--methods", "simgcd", "--organizers", "none,patches", *settings)
    assert code == 0
    assert "## birds[1].v2" in text
    header, *rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert "reported" not in header
    assert "count error" in header
    cells = [[cell.strip(" †") for cell in row.split("|")[1:-1]] for row in rows]
    of_row = {name: figures for name, *figures in cells}
    assert re.fullmatch(r"[\d.]+", of_row["SimGCD"][0])
    assert re.fullmatch(r"[+\N{MINUS SIGN}][\d.]+", of_row["Δ"][0])
    assert list(of_row) == ["SimGCD", "SimGCD + patches", "Δ"]
    assert run_cli(*command, "--collect")[1] == text
    shutil.copytree(birds, tmp_path / "elsewhere" / birds.name)
    elsewhere = ("--data", str(tmp_path / "elsewhere" / birds.name))
    _, out, err = run_cli("bench", "plugin", "--out", str(tmp_path / "runs"), "--collect", *elsewhere)
    assert "holds another run" in err
    assert "no run yet" in out
    with pytest.raises(NewkindsError, match=r"two data sources are called 'birds\[1\].v2'"):
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


def test_one_table_has_every_system_and_says_what_was_shrunk(run_cli: Cli, tmp_path: Path) -> None:
    """The first stage of a requested method is run and shown too; what its rows share is asked for once."""
    command = ("bench", "all", "--out", str(tmp_path), "--data", "creatures")
    small = [f"{name}={value}" for name, value in (("data.categories", 4), ("data.per_category", 8))]
    options = [part for setting in (*small, "train.batch_size=16") for part in ("--set", setting)]
    chosen = ("--methods", "mugcd", "--organizers", "none", "--baselines", "kmeans", "--epochs", "1")
    status, text, _ = run_cli(*command, *options, *chosen)
    assert status == 0
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    assert [row[1].strip(" †") for row in rows] == ["", "frozen + kmeans", "GCD", "MuGCD"]
    assert [cell.strip() for cell in rows[0][2:-1]] == ["All %", "Old %", "New %", "params M", "time s", "seeds"]
    assert "narrower heads" in text
    assert "GCD: gcd, projection_hidden 256, output_dim 1024" in text
    assert run_cli(*command, "--collect")[1] == text


def test_the_papers_table_asks_for_pim_where_the_paper_has_it_and_for_nothing_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Cell] = []
    monkeypatch.setattr("newkinds.experiments.bench._runnable", lambda cells, *_: cells)
    monkeypatch.setattr("newkinds.experiments.bench.run_all", lambda cells, *_: begun.extend(cells) or Worked())
    bench("coarse", tmp_path, data=["cifar10"], baselines=["none"])
    hosts = ["gcd", "promptcal", "dccl", "protogcd", "infosieve", "simgcd", "legogcd", "cms", "selex"]
    assert set(hosts) | {"promptcal-stage1"} == {cell.method for cell in begun}, "a first stage is needed"
    assert [cell.organizer for cell in begun if cell.method == "gcd"] == ["none", *CONTROLS, "cpf", "pim"]
    for chosen, count in (({"methods": ["cms"]}, 5), ({"organizers": ["none"], "methods": ["gcd"]}, 1)):
        begun.clear()
        bench("coarse", tmp_path, data=["cifar10"], baselines=["none"], **chosen)  # type: ignore[arg-type]
        assert len(begun) == count
    with pytest.raises(NewkindsError, match="no method 'APL'"):
        bench("coarse", tmp_path, methods=["APL"])


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
    row = re.search(r"^\| SimGCD[ †]+\| +61.2 \| +([\d.]+) \|", text, re.MULTILINE)
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
    assert collect(TABLES["fine"].cells(), out).found == {}


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
    assert list(collect(TABLES["fine"].cells(), tmp_path / "runs").found) == [Cell("cub", "simgcd", "none", 1)]
    assert (foreign / "mine.txt").is_file()


def test_any_error_of_a_cell_is_told_and_the_others_run(
    birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = []

    def exhausted(data: str, folder: Path, **_: object) -> None:
        tried.append(folder.name)
        raise MemoryError("CUDA out of memory")

    monkeypatch.setattr("newkinds.experiments.run_grid.discover", exhausted)
    grid = {"data": ["cub"], "methods": ["simgcd"], "organizers": ["none", "cpf"], "baselines": ["none"]}
    benched = bench("fine", tmp_path, **grid, backbone="tiny", data_root=birds)  # type: ignore[arg-type]
    assert len(tried) == len(benched.failed) == 2
    assert "there is not enough memory" in capsys.readouterr().err
    assert "no run yet" in benched.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--methods", "simgcd,simgdc"), "no method 'simgdc'. Did you mean 'simgcd'"),
        (("--organizers", "cfp"), "no organizer 'cfp'. Did you mean 'cpf'"),
        (("--baselines", "kmean"), "no baseline 'kmean'. Did you mean 'kmeans'"),
        (("--data", "cifar11"), "no data set 'cifar11'. Did you mean 'cifar1"),
        (("--data", ""), "no data set is named"),
        (("--seeds", "-1"), "seeds are whole numbers"),
        (("--seeds", "0,1", "-1"), "seeds are whole numbers from 0 on, not [0, 1, -1]"),
        (("--set", "method.name=gcd"), "each cell has its own method.name"),
        (("--set", "method.simgcd.memx=2", "--data", "cub"), "'method.simgcd.memx'. Did you mean 'memax_weight'"),
        (("--set", "train.seed=5"), "each cell has its own train.seed"),
        (("--set", "train.start=runs/a"), "each cell has its own train.start"),
    ],
)
def test_wrong_names_are_said_before_anything_is_run(
    options: tuple[str, ...], said: str, birds: Path, tmp_path: Path, run_cli: Cli
) -> None:
    status, _, err = run_cli("bench", "fine", "--out", tmp_path / "runs", "--data-root", birds, *options)
    assert status == 1
    assert said in err
    assert not (tmp_path / "runs").exists()


def test_settings_of_one_organizer_wait_for_it_and_wrong_ones_stop_their_cell_alone(
    birds: Path, tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def refuse(data: str, folder: Path, **_: object) -> None:
        begun.append(folder.name)
        raise NewkindsError("enough")

    monkeypatch.setattr("newkinds.experiments.run_grid.discover", refuse)
    command = (
        "bench", "fine", "--out", tmp_path, "--data", "cub", "--data-root", birds, "--seeds", "0", "0", "--baselines",
        "none", "--backbone", "tiny",
    )  # fmt: skip
    of_cpf = ("--organizers", "none,cpf", "--set", "organizer.cpf={primitives: 8, heads: 8}")
    run_cli(*command, "--methods", "simgcd", *of_cpf)
    assert begun == ["cub-simgcd-none-seed0", "cub-simgcd-cpf-seed0"], "each once, although a seed was named twice"
    begun.clear()
    one_host = ("--organizers", "none", "--set", "method.memax_weight=2")
    status, _, err = run_cli(*command, "--methods", "gcd,simgcd", *one_host)
    assert status == 1
    assert begun == ["cub-simgcd-none-seed0"]
    assert "GCD on cub is left out: there is no setting 'method.memax_weight'" in err


def test_a_data_set_that_cannot_be_read_stops_no_other(
    birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = []

    def load(settings: dict[str, object]) -> Table:
        if settings["name"] == "cars":
            raise PermissionError("no entry")
        return load_table(settings)

    monkeypatch.setattr("newkinds.experiments.bench.load_table", load)
    monkeypatch.setattr("newkinds.experiments.run_grid.discover", lambda data, folder, **_: begun.append(folder.name))
    asked = {"data": ["cars", "cub"], "methods": ["simgcd"], "organizers": ["none"], "baselines": ["none"]}
    bench("fine", tmp_path, data_root=birds, backbone="tiny", **asked)  # type: ignore[arg-type]
    assert begun == ["cub-simgcd-none-seed0"]
    assert "cars is left out: PermissionError: no entry" in capsys.readouterr().err


def test_nothing_to_collect_is_an_error(tmp_path: Path, run_cli: Cli) -> None:
    status, _, err = run_cli("bench", "fine", "--out", tmp_path / "mistyped", "--collect")
    assert status == 1
    assert "mistyped" in err


def test_missing_weights_are_said_once_and_before_any_run(run_cli: Cli, tmp_path: Path) -> None:
    """Rows of frozen features, hosts and seeds all need the same file."""
    words = ("--methods", "simgcd,gcd", "--seeds", "0", "1", "--weights", str(tmp_path / "gone.pth"))
    status, _, said = run_cli("bench", "plugin", "--data", "creatures", "--out", tmp_path / "runs", *words)
    assert status == 1
    assert said.count("gone.pth") == 1
    assert "all with the backbone tiny is left out: there is no weight file" in said
    assert list((tmp_path / "runs").iterdir()) == []
