"""Which code a run records, and which changes of it keep runs apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from newkinds.methods import METHODS
from newkinds.methods.simgcd import SimGCD
from newkinds.runs import code
from newkinds.runs.code import as_settings, code_of, describe_difference, differing_code
from newkinds.runs.config import Config, resolve
from newkinds.runs.records import RunCode
from newkinds.runs.run import Run


def config_of(method: str, organizer: str = "none", assigner: str = "own") -> Config:
    parts = {"method": {"name": method}, "organizer": {"name": organizer}, "assigner": {"name": assigner}}
    return resolve({"data": {"name": "creatures"}}, parts)


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> object:
    """Has files of newkinds changed, as far as checksums can see: edited("methods/simgcd.py")."""

    def edit(*names: str) -> None:
        for function in (code._shared, code._own_code):
            function.cache_clear()
        files = {code.PACKAGE / name for name in names}
        monkeypatch.setattr(code, "checksum_of_files", lambda found: f"{len(found)}{'+' * len(files & {*found})}")

    yield edit
    edit()


def test_a_change_concerns_the_runs_that_it_can_change(edited) -> None:  # type: ignore[no-untyped-def]
    configs = {
        "simgcd": config_of("simgcd"), "legogcd": config_of("legogcd"), "gcd": config_of("gcd"),
        "gcd+cpf": config_of("gcd", "cpf"), "gcd+parts": config_of("gcd", "cpf-parts"),
        "gcd+em": config_of("gcd", assigner="em"),
    }  # fmt: skip
    edited()
    before = {name: code_of(config) for name, config in configs.items()}
    every = {name: ["newkinds"] for name in configs}
    concerned = {
        "methods/simgcd.py": {"simgcd": ["method"], "legogcd": ["method"]},  # LegoGCD is built on SimGCD
        "methods/legogcd.py": {"legogcd": ["method"]},
        "encoders/organizers/cpf.py": {"gcd+cpf": ["organizer"], "gcd+parts": ["organizer"]},
        "assigners/em.py": {"gcd+em": ["assigner"]},
        "training/loop.py": every,
        "methods/losses.py": every,
        "encoders/backbones.py": every,
        "cluster/kmeans.py": every,
        "cli/comparing.py": {},
        "experiments/styles.py": {},
        "discovery/report/build.py": {},
        "methods/__init__.py": {},  # gathers the methods
    }
    for file, expected in concerned.items():
        assert (code.PACKAGE / file).is_file()
        edited(file)
        now = {name: differing_code(before[name], code_of(config)) for name, config in configs.items()}
        assert {name: differing for name, differing in now.items() if differing} == expected, file


def test_a_part_of_others_that_is_built_on_ours_depends_on_both(edited, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    for name in ("_entries", "_origins", "_codes"):
        monkeypatch.setattr(METHODS, name, dict(getattr(METHODS, name)))
    METHODS.register("built-on-simgcd")(type("Built", (SimGCD,), {"__module__": __name__}))
    config = config_of("built-on-simgcd")
    edited()
    before = code_of(config)
    edited("methods/simgcd.py")
    assert differing_code(before, code_of(config)) == ["method"]
    edited("methods/legogcd.py")
    assert differing_code(before, code_of(config)) == []


NOW = RunCode("0.2.0", "ab", {"method": "cd"})


def test_runs_of_unknown_or_mixed_code_are_like_no_others() -> None:
    assert differing_code(None, NOW) == ["newkinds"]
    assert differing_code(replace(NOW, changed=True), replace(NOW, changed=True)) == ["newkinds"]
    assert differing_code(replace(NOW, commit="e32be14"), NOW) == [], "a commit is for people"
    assert differing_code(replace(NOW, version="0.1.0"), NOW) == ["newkinds"]
    assert differing_code(replace(NOW, parts={}), NOW) == ["method"]
    assert as_settings(None, "a") == as_settings(None, "b"), "older runs are like each other"
    mixed = replace(NOW, changed=True)
    assert as_settings(mixed, "a") != as_settings(mixed, "b")


def test_what_differs_is_said_in_words(trained_run: Path) -> None:
    run = Run(trained_run)
    record, config = run.protocol(), run.config()
    assert record.code == code_of(config)
    assert describe_difference(record, config) == ""
    assert describe_difference(replace(record, code=None), config) == "made before the code of runs was recorded"
    other = replace(record.code, parts={**record.code.parts, "method": "another"})
    method = config.method["name"]
    assert describe_difference(replace(record, code=other), config) == f"the code of the method '{method}' has changed"
    older = describe_difference(replace(record, code=replace(record.code, version="0.1.0", commit="")), config)
    assert older.startswith(f"newkinds was 0.1.0, checksum {record.code.shared}, and is ")
