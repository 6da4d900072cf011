"""What many tests need: small folders of images, and a run trained for a moment."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image

import newkinds
from newkinds import plugins
from newkinds.methods import METHODS
from newkinds.runs.run import Run

torch.set_num_threads(1)  # tests run side by side, one per core (pytest -n auto)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell: what tests start must hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

TINY_TRAINING = {
    "data": {"categories": 4, "per_category": 8},
    "train": {"epochs": 2, "batch_size": 16},
}
SMALL_HEAD = {"method": {"projection_hidden": 32}}  # of SimGCD and others: the published one takes most of the time


def small_heads(method: str, **sizes: int) -> dict[str, int]:
    """Those of the sizes that are settings of the method."""
    return {name: size for name, size in sizes.items() if name in METHODS[method].Config.__dataclass_fields__}


def learns_prototypes(method: str) -> bool:
    """Whether the method's loss learns its categories, so that nothing is clustered in the end."""
    build = METHODS[method]
    config = build.Config(**small_heads(method, projection_hidden=8, output_dim=8, bank=8))
    return build(config, dim=4, known=2, categories=3).assigner().learnt


# What does not depend on releases of dependencies, says little for its time, or (test_refine, test_update) rests on the
# very categories of a small run, which change with the last digits of a resized image: not run with the oldest and the
# newest ones too (.ci/releases). Everything is run in one environment.
ONCE = (
    "data/published", "data/test_odd_data.py", "discovery/test_report_browser.py", "discovery/test_studio_browser.py",
    "discovery/test_studio_screens.py", "experiments", "faults", "generated", "test_docs.py", "test_readme.py",
    "test_ownership.py", "test_results_page.py", "test_site.py", "test_supply.py", "test_tutorial.py",
    "training/test_contract.py",
    "training/test_distributed.py", "training/test_processes_end.py", "verbs/test_examples.py",
    "verbs/test_hardened.py", "verbs/test_plan.py", "verbs/test_refine.py", "verbs/test_refine_training.py",
    "verbs/test_update.py",
)  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(Path(__file__).parent)
        if any(place.is_relative_to(part) for part in ONCE):
            item.add_marker(pytest.mark.once)
    named = any("::" in argument for argument in config.args)  # somebody asks for this very test
    if "long" not in config.option.markexpr and os.environ.get("NEWKINDS_FAULTS") != "long" and not named:
        waiting = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=waiting)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


class Killed(BaseException):
    """Stands for the end of the process at a chosen moment: nothing in the program catches it."""


def save_image(path: Path, colour: tuple[int, int, int] = (200, 80, 40), size: tuple[int, int] = (40, 30)) -> Path:
    """A noisy single-coloured picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(zlib.crc32(path.name.encode()))
    noise = rng.integers(-30, 30, (size[1], size[0], 3))
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path)
    return path


@pytest.fixture(autouse=True)
def plugins_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins of a test are gone with its folder: processes that a later one starts are not to look for them."""
    monkeypatch.setattr(plugins, "_loaded", plugins._loaded.copy())


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test touches the user's caches."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("NEWKINDS_CACHE", str(folder))
        patch.setenv("NEWKINDS_BACKBONE", "tiny")  # what auto stands for: no test downloads weights,
        patch.setenv("NEWKINDS_DOWNLOAD", "0")  # or asks whether it may
        yield folder


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test has its caches; none yet."""
    monkeypatch.setenv("NEWKINDS_CACHE", str(tmp_path / "caches"))
    return tmp_path / "caches"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """red/ and green/ are known; unlabeled/ holds red, green and blue images, and one lies loose."""
    root = tmp_path / "photos"
    colours = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
    for name in ("red", "green"):
        for i in range(4):
            save_image(root / name / f"{i}.png", colours[name])
    for name, colour in colours.items():
        for i in range(4):
            save_image(root / "unlabeled" / f"{name}{i}.jpg", colour)
    save_image(root / "loose.png", colours["blue"])
    return root


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A discovery on a few creatures, with CPF, two epochs."""
    out = tmp_path_factory.mktemp("runs") / "creatures"
    newkinds.discover("creatures", out, organizer="cpf", settings=[TINY_TRAINING, SMALL_HEAD])
    return out


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that one process of pytest makes and all of them read (pytest -n auto): the others wait for it."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all processes
    folder, whole = base / name, base / f"{name}.whole"
    with FileLock(f"{folder}.lock"):
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
            folder.mkdir()
            make(folder)
            whole.touch()
    return folder


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Found, judged, counted, corrected and shown: a run with every kind of file. No test changes it."""

    def make(folder: Path) -> None:
        out = folder / "run"
        settings = {**TINY_TRAINING, "method": {"projection_hidden": 8}}
        found = newkinds.discover("creatures", out, organizer="cpf", settings=settings)
        found.rename(0, "first")
        found.move([found.members[3].path], "first")
        found.accept([found.members[5].path])
        newkinds.evaluate(out)
        newkinds.count_categories(out)
        newkinds.report(out)

    return made_once(tmp_path_factory, "whole", make) / "run"


@pytest.fixture
def table_run(whole_run: Path, tmp_path: Path) -> Path:
    """A copy of what edits need, without a model and without edits."""
    ignored = shutil.ignore_patterns("model.safetensors", "train_state.pt", "edits.*", "*.png", "report.html")
    return Path(shutil.copytree(whole_run, tmp_path / "tables", ignore=ignored))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser without a window, as `browsers` starts it; its tests have the mark `needs_chromium`."""
    from browsers import a_chromium

    with a_chromium() as driver:
        yield driver


@pytest.fixture(scope="session")
def drawn_creatures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for the studio, drawn and not trained; no test changes it."""
    from screens import creatures_run

    return creatures_run(tmp_path_factory.mktemp("drawn") / "creatures")


@pytest.fixture
def creatures(drawn_creatures: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(drawn_creatures, tmp_path / "creatures"))


@pytest.fixture
def count_cases(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """`count_cases("flipped bits", 120)`: campaigns say how many cases they tried; the sums are shown in the end."""
    return lambda what, number: record_property(f"cases of {what}", number)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    cases: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, number in report.user_properties:
            if name.startswith("cases of "):
                cases[name.removeprefix("cases of ")] += number
    if cases:
        terminalreporter.section("cases that held")
        for what, number in cases.items():
            terminalreporter.line(f"{number:6,}  {what}")
        kills = sum(number for what, number in cases.items() if what.startswith("kills "))
        if kills:
            terminalreporter.line(f"{kills:6,}  kills, together")
        terminalreporter.line(f"{cases.total():6,}  in all")


@pytest.fixture
def run_cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call the command line in this process: (exit status, stdout, stderr)."""
    from newkinds.cli import main

    def call(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main([str(a) for a in arguments])
        except SystemExit as stop:  # argparse
            status = int(stop.code or 0)
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def killed_after_an_epoch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """`with killed_after_an_epoch(): train(…)`: the process dies as soon as the first epoch has been saved."""

    @contextmanager
    def killed() -> Iterator[None]:
        save_state = Run.save_state

        def save_and_die(run: Run, state: dict[str, object]) -> None:
            save_state(run, state)
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(Run, "save_state", save_and_die)
            with pytest.raises(Killed):
                yield

    return killed


@pytest.fixture
def registries_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a test loads is forgotten after it, and entry points are looked for anew."""
    from newkinds.contracts.base import ASKED

    for registry in ASKED.values():
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_origins", dict(registry._origins))
        monkeypatch.setattr(registry, "_not_loaded", None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package: the text of its module, and its entry points by group."""

    def install(name: str, module: str, **groups: dict[str, str]) -> None:
        site = tmp_path / "site"
        (info := site / f"{name}-1.5.dist-info").mkdir(parents=True)
        (site / f"{name}.py").write_text(module)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        lines = [
            line
            for group, points in groups.items()
            for line in (f"[newkinds.{group}]", *(f"{point} = {value}" for point, value in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        monkeypatch.syspath_prepend(site)

    return install
