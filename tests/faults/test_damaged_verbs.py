"""One flipped bit or a lost tail in any file that a verb writes, beyond those of `test_damage`: whoever reads it again
gives the same, or names it. Folders are walked, so that no file is left out; what nobody reads is written anew by the
same command."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from damage import LONG, Count, Readers, damages, files_below, hit

import newkinds
from conftest import TINY_TRAINING, save_image
from newkinds.cli import main
from newkinds.errors import NewkindsError
from newkinds.experiments.bench import bench
from newkinds.ownership import ELSEWHERE
from newkinds.runs.run import Run
from newkinds.verbs import plan
from newkinds.verbs.choices import layers_of
from planning import shorten

SETTINGS: dict[str, Any] = {**TINY_TRAINING, "method": {"projection_hidden": 8}}
PLANNED: dict[str, Any] = {"data": {"categories": 8, "per_category": 6}, "k": "auto"}


@dataclass
class Place:
    """Where a verb writes, a whole run that it may begin with, and a folder for what is not looked at."""

    out: Path
    run: Path
    aside: Path

    def page(self) -> bytes:
        return newkinds.report(self.out, out=self.aside / "page.html").read_bytes()

    def found(self) -> Any:
        found = newkinds.Discovery.read(self.out)
        return found.members, found.categories, found.log()

    def judged(self) -> Any:
        """What a plan goes on from."""
        return plan.Plan(Run(self.out), layers_of("creatures", {"settings": PLANNED}), 60.0).earlier

    def written(self, *command: object) -> dict[str, bytes]:
        """All that a command has written."""
        assert main([str(word) for word in command]) == 0
        return {name: (self.out / name).read_bytes() for name in files_below(self.out)}


def planned(place: Place) -> Readers:
    newkinds.discover("creatures", place.out, settings=PLANNED)
    return {"found": place.found, "judged": place.judged, "page": place.page}


def tuned(place: Place) -> Readers:
    newkinds.tune("creatures", place.out, settings=PLANNED)
    return {"judged": place.judged, "recipe": lambda: layers_of(None, {"recipe": place.out / "recipe.yaml"})}


def trained(place: Place) -> Readers:
    def again() -> Any:
        loaded = newkinds.train("creatures", place.out, settings=SETTINGS)
        return loaded.model.as_safetensors(), loaded.run.metrics(), loaded.run.protocol()

    again()
    return {"again": again}


def refined(place: Place) -> Readers:
    def again() -> Any:
        return newkinds.refine(place.run, place.out).members

    again()
    return {"again": again, "found": place.found, "page": place.page}


def benched(place: Place) -> Readers:
    def table(only_collect: bool) -> Any:
        done = bench(
            "ablation", place.out, data=["creatures"], methods=["simgcd"], organizers=["none"], baselines=["kmeans"],
            settings={} if only_collect else SETTINGS, only_collect=only_collect,
        )  # fmt: skip
        return done.text, done.failed

    table(only_collect=False)
    return {"again": lambda: table(False), "collected": lambda: table(True)}


def exported(place: Place) -> Readers:
    """A model for people who do not have newkinds: its own script reads it."""
    picture = save_image(place.aside / "a.png")
    place.out.rmdir()
    newkinds.export(place.run, "torch", place.out)

    def predict() -> str:
        command = [sys.executable, "-B", str(place.out / "predict.py"), str(picture)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NewkindsError(done.stderr)
        if not done.stdout:  # an empty program cannot name itself: who called it sees that it said nothing
            raise NewkindsError("predict.py said nothing")
        return done.stdout

    return {"predict": predict}


@pytest.fixture
def place(whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    shorten(monkeypatch)  # nothing is trained to be compared
    for name in ("out", "aside"):
        (tmp_path / name).mkdir()
    return Place(tmp_path / "out", Path(shutil.copytree(whole_run, tmp_path / "run")), tmp_path / "aside")


@pytest.mark.parametrize("make", [planned, tuned, *((trained, refined, benched, exported) if LONG else ())])
def test_damaged_files_of_verbs(
    make: Callable[[Place], Readers],
    place: Place,
    whole_run: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    count_cases: Count,
) -> None:
    readers = make(place)
    for read in readers.values():  # some write
        read()
    kept = Path(shutil.copytree(place.out, tmp_path / "kept"))
    others = () if LONG else files_below(whole_run)  # which `test_damage` damages
    names = [name for name in files_below(kept) if name not in others]
    assert names
    cases = hit(place.out, kept, names, readers, capfd, luck=random.Random(5), flips=1, tails=0)
    count_cases(f"flipped bits and lost tails in what is {make.__name__}", cases)


OUTPUTS = {  # what newkinds never reads again: only people and other programs do
    "predict": ("RUN", "ASIDE/a.png", "--out", "OUT/predicted.csv"),
    "check": ("creatures", "--out", "OUT", "--set", "data.per_category=6", "--set", "data.categories=6"),
    "figures": ("RUN", "--out", "OUT", "--examples", "2"),
    "diagnose": ("RUN", "--out", "OUT", "--sample", "8"),
}


@pytest.mark.parametrize("verb", OUTPUTS if LONG else ["predict"])
def test_damaged_outputs_are_named_and_written_anew(
    verb: str, place: Place, capfd: pytest.CaptureFixture[str], count_cases: Count
) -> None:
    """By the same command, once they were taken away: damage cannot be told from what somebody has edited."""
    save_image(place.aside / "a.png")
    stands_for = {"RUN": place.run, "OUT": place.out, "ASIDE": place.aside}
    words = [[str(stands_for.get(part, part)) for part in word.split("/")] for word in OUTPUTS[verb]]
    command = (verb, *("/".join(parts) for parts in words))
    sound, luck, cases = place.written(*command), random.Random(6), 0
    sound.pop(ELSEWHERE, None)
    hurt = {name: [damaged for _, damaged in damages(content, luck, 1, 0)] for name, content in sound.items()}
    for number in range(max(map(len, hurt.values()))):
        for name, kinds in hurt.items():
            (place.out / name).write_bytes(kinds[number % len(kinds)])
            cases += 1
        capfd.readouterr()
        assert main(list(command)) == 1
        said = capfd.readouterr().err
        assert any(f"{place.out / name} would be replaced, but it is not as newkinds wrote it" in said for name in hurt)
        for name in hurt:
            (place.out / name).unlink()
        assert sound.items() <= place.written(*command).items()
    assert cases
    count_cases(f"flipped bits and lost tails in outputs of {verb}", cases)
