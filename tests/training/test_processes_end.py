"""Several processes that end too early, and how torchrun is started on several machines: NEWKINDS_FAULTS=long."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from several import torchrun_words
from test_distributed import LONG, assert_same_run

import newkinds
from conftest import save_image

DOCS = Path(__file__).parents[2] / "docs" / "scale.md"
SETTINGS = {
    "data": {"categories": 6, "per_category": 24},
    "method": {"projection_hidden": 32},
    "train": {"epochs": 2, "batch_size": 23, "cache_views": 2},
}
WORDS = [
    *("discover", "creatures", "--method", "simgcd", "--epochs", 2, "--cache-views", 2),
    *("--set", "data.categories=6", "--set", "data.per_category=24"),
    *("--set", "method.projection_hidden=32", "--set", "train.batch_size=23"),
]
DIED = "another process of this run has died"
RESUME = "to resume, rerun the same command"
# what the first process says when it begins to cache, train and embed
STAGES = ("caching the tokens", "training backbone", "epoch 1/2", "epoch 2/2")


def environment(**variables: object) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in variables.items()}}


def workers(launcher: int) -> dict[int, int]:
    """The processes that torchrun has started: rank → its id."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1]) if folder.name.isdecimal() else 0
            rank = re.search(rb"\0RANK=(\d+)\0", (folder / "environ").read_bytes()) if parent == launcher else None
        except OSError:  # it has just ended
            continue
        if rank:
            found[int(rank[1])] = int(folder.name)
    return found


def disturbed(words: list[str], when: str, disturb: Callable[[int], object], **variables: object) -> tuple[int, str]:
    """Run a command until it says something, disturb it (with its process id), and wait: its status and all it said."""
    started = subprocess.Popen(words, env=environment(**variables), stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    assert started.stderr is not None
    watchdog = threading.Timer(200, started.kill)
    watchdog.start()
    for line in started.stderr:
        if when in line and when not in "".join(said):
            disturb(started.pid)
        said.append(line)
    watchdog.cancel()
    return started.wait(), "".join(said)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process that nothing disturbed."""
    out = tmp_path_factory.mktemp("sound") / "run"
    newkinds.discover("creatures", out, method="simgcd", settings=SETTINGS)
    return out


@LONG
@pytest.mark.parametrize("number", range(8))
def test_a_killed_process_ends_all_and_any_number_resumes(
    number: int, sound: Path, tmp_path: Path, count_cases: Callable[[str, int], None]
) -> None:
    luck, out = random.Random(number), tmp_path / "run"
    when, victim = STAGES[number % 4], luck.choice([0, 1])

    def kill(launcher: int) -> None:
        time.sleep(luck.uniform(0, 0.5))
        os.kill(workers(launcher)[victim], signal.SIGKILL)

    words = [*WORDS, "--out", out]
    cache = {"NEWKINDS_CACHE": tmp_path / "cache"}
    status, said = disturbed(torchrun_words("-m", "newkinds", *words), when, kill, **cache)
    assert status != 0
    assert said.count(DIED) == said.count(RESUME) == 1
    assert "newkinds.errors" not in said  # no traceback of ours
    processes = 1 + number % 3
    alone = [sys.executable, "-m", "newkinds", *map(str, words)]
    resume = alone if processes == 1 else torchrun_words("-m", "newkinds", *words, processes=processes)
    subprocess.run(resume, env=environment(**cache), check=True, timeout=300)
    assert_same_run(sound, out)
    count_cases("kills of one of several processes", 1)


@LONG
@pytest.mark.parametrize("times", [1, 2])
def test_interrupted_is_said_once(times: int, tmp_path: Path) -> None:
    def interrupt(launcher: int) -> None:
        for _ in range(times):
            os.kill(launcher, signal.SIGINT)
            time.sleep(0.3)

    words = torchrun_words("-m", "newkinds", *WORDS, "--out", tmp_path / "run")
    status, said = disturbed(words, "epoch 1/2", interrupt, NEWKINDS_CACHE=tmp_path / "cache")
    assert status != 0
    assert said.count("interrupted; to resume, rerun the same command") == 1
    assert DIED not in said


@LONG
def test_an_image_that_is_deleted_in_training_is_named_once(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for i in range(24):
        save_image(photos / ("red" if i % 2 else "green") / f"{i}.png", (200, 40, 40) if i % 2 else (40, 200, 40))
        save_image(photos / "unlabeled" / f"{i}.png", (40, 40, 200))
    lost = photos / "unlabeled" / "7.png"
    words = ["discover", photos, "--k", 3, "--method", "gcd", "--epochs", 3, "--set", "train.batch_size=11"]
    words += ["--set", "method.output_dim=64", "--set", "train.workers=2", "--cache-views", 0]
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run([sys.executable, "-m", "newkinds", *map(str, words), "--out", one], env=environment(), check=True)
    command = torchrun_words("-m", "newkinds", *words, "--out", two)
    status, said = disturbed(command, "epoch 1/3", lambda _: lost.rename(tmp_path / "kept.png"))
    assert status != 0
    assert said.count("error: ") == said.count("unlabeled/7.png could be read when the run began, but no longer") == 1
    assert "rerun the same command" in said
    (tmp_path / "kept.png").rename(lost)
    subprocess.run(command, env=environment(), check=True, timeout=300)
    assert (two / "assignments.csv").read_text().count("\n") == 49
    model, other = ((run / "metrics.jsonl").read_text().splitlines() for run in (one, two))
    assert [line.split('"loss": ')[1][:6] for line in model] == [line.split('"loss": ')[1][:6] for line in other]


def shell_script() -> str:
    """What docs/scale.md gives to sbatch."""
    return next(text for text in re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.DOTALL) if "#SBATCH" in text)


def test_the_slurm_script_is_shell() -> None:
    subprocess.run(["bash", "-n"], input=shell_script(), text=True, check=True)
    assert shell_script().startswith("#!/bin/bash\n#SBATCH ")


def executable(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/bash\n{text}\n")
    file.chmod(0o755)


@LONG
def test_the_slurm_script_runs(sound: Path, tmp_path: Path) -> None:
    """With a SLURM of one machine: what the script calls is there, and its torchrun line is as it stands."""
    tools = tmp_path / "tools"
    tools.mkdir()
    executable(tools / "scontrol", '[ "$*" = "show hostnames one-machine" ] && echo localhost')
    executable(tools / "srun", 'exec "$@"')
    executable(tools / "torchrun", f'exec {sys.executable} -m torch.distributed.run "$@"')
    script = shell_script()
    ours = {
        "/shared/newkinds-cache": str(tmp_path / "cache"),
        "--nproc-per-node 4": "--nproc-per-node 2",
        "discover /shared/photos --out /shared/runs/photos": " ".join(map(str, [*WORDS, "--out", tmp_path / "run"])),
        ":29500": ":29613",
    }
    for theirs, mine in ours.items():
        assert theirs in script
        script = script.replace(theirs, mine)
    slurm = {"SLURM_JOB_NODELIST": "one-machine", "SLURM_NNODES": "1", "SLURM_JOB_ID": "17"}
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-s"], input=script, text=True, env=environment(PATH=path, **slurm), check=True, timeout=300
    )
    assert_same_run(sound, tmp_path / "run")


@LONG
def test_two_launchers_as_on_two_machines(sound: Path, tmp_path: Path) -> None:
    """The documented line, started twice on this machine, with one process each."""
    line = re.search(r"torchrun (--nnodes 2 .*?)-m newkinds", DOCS.read_text(), re.DOTALL)
    assert line is not None
    documented = line[1].replace("\\\n", " ").replace("first-machine:29500", "localhost:29614")
    start = documented.replace("--nproc-per-node 4", "--nproc-per-node 1").split()
    words = [sys.executable, "-m", "torch.distributed.run", *start, "-m", "newkinds", *map(str, WORDS)]
    words += ["--out", str(tmp_path / "run")]
    both = [subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = "".join(launcher.communicate(timeout=300)[0] for launcher in both)
    assert [launcher.returncode for launcher in both] == [0, 0]
    assert said.count("images assigned") == 1
    assert_same_run(sound, tmp_path / "run")
