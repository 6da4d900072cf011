"""Which code decides the figures of a run: newkinds' own, but for parts that it does not use, and parts of others.

What prints, shows or reads tables does not count, nor do comments and docstrings: a night of runs outlives these.
"""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from .._version import __version__
from ..source_code import checksum_of_files, files_of_code, files_with_imports
from .config import NO_START, REGISTRIES, Config
from .records import OutsidePart, Protocol, RunCode
from .run import Run

PACKAGE = Path(__file__).resolve().parents[1]
DECIDING = ("data", "encoders", "cluster", "assigners", "methods", "training")  # rooms
ALSO = ("precision.py", "verbs/train.py", "evaluation/judge.py")
OPTIONAL = ("tuning", "organizer", "method", "assigner")  # sections whose parts a run chooses among many
NOT_RECORDED = "made before the code of runs was recorded"
CODE = "code."  # how names of code begin among those of settings
START = "start."  # of the code of the run that a second stage starts from


def code_of(config: Config) -> RunCode:
    """The code as it is now, as far as runs with these settings depend on it."""
    parts = {}
    for section, registry in REGISTRIES.items():
        name = getattr(config, section)["name"]
        if name not in registry or (section not in OPTIONAL and registry.origin(name) is None):
            continue  # the method's own assigner, or a data set of ours, which is shared
        own = _own_code(*sorted(_own_files(registry[name], registry.origin(name))))
        if checksums := [*filter(None, [registry.code(name), own])]:
            parts[section] = " ".join(checksums)
    return RunCode(__version__, _shared(), {**parts, **_parts_of_start(config)}, _commit())


def differing_code(there: RunCode | None, now: RunCode) -> list[str]:
    """In which code a run differs from what is here now: "newkinds" or sections; empty if in none."""
    if there is None or there.changed or (there.version, there.shared) != (now.version, now.shared):
        return ["newkinds"]
    return [section for section in {**now.parts, **there.parts} if now.parts.get(section) != there.parts.get(section)]


def describe_difference(record: Protocol, config: Config) -> str:
    """What of the code that made a run is not as it is now, in words; empty if all is."""
    there, now = record.code, code_of(config)
    differing = differing_code(there, now)
    if not differing:
        return ""
    if there is None:
        return NOT_RECORDED
    if there.changed:
        return "its training went on with other code than it began with"
    if differing == ["newkinds"]:
        return f"newkinds was {_release(there)}, and is {_release(now)}"
    changed = dict.fromkeys(_part(section, config, record.outside) for section in differing)
    return " and ".join(f"{part} has changed" for part in changed)


def as_settings(code: RunCode | None, run: str) -> dict[str, str]:
    """What must be equal for runs to be averaged, by names like those of settings."""
    if code is None:
        return {f"{CODE}newkinds": NOT_RECORDED}
    if code.changed:
        return {f"{CODE}newkinds": f"changed while {run} was trained"}
    parts = {f"{CODE}{section}": checksum for section, checksum in code.parts.items()}
    return {f"{CODE}newkinds": f"{code.version} {code.shared}", **parts}


def code_after_assigning(source: RunCode | None, config: Config) -> RunCode | None:
    """Of a run that was given another assigner now."""
    now = code_of(config)
    if source is None:
        return None
    return replace(now, changed=bool({*differing_code(source, now)} - {"assigner"}))


def describe_code(code: RunCode | None) -> str:
    """For protocols."""
    if code is None:
        return NOT_RECORDED
    changed = "; training went on with other code than it began with" if code.changed else ""
    return f"newkinds {_release(code)}{changed}"


def _release(code: RunCode) -> str:
    commit = f", commit {code.commit}" if code.commit else ""
    return f"{code.version}{commit}, checksum {code.shared}"


def _part(section: str, config: Config, outside: dict[str, OutsidePart]) -> str:
    if section.startswith(START):
        return "the code of the run that it starts from"
    where = f" ({outside[section].origin})" if section in outside else ""
    return f"the code of the {REGISTRIES[section].kind} '{getattr(config, section)['name']}'{where}"


def _parts_of_start(config: Config) -> dict[str, str]:
    """The code of the run that a second stage starts from, as parts of its own: `start.method` …"""
    if config.train.start in (None, NO_START) or not config.train.epochs:
        return {}
    record = Protocol.find(Run(str(config.train.start)))  # none for a checkpoint: its weights have a checksum
    code = as_settings(None if record is None else record.code, config.train.start or "")
    return {f"{START}{name.removeprefix(CODE)}": checksum for name, checksum in code.items()}


@cache
def _room_files() -> frozenset[Path]:
    """What may decide figures; the files that gather a room's parts do not."""
    found = [file for room in DECIDING for file in (PACKAGE / room).rglob("*.py") if file.name != "__init__.py"]
    return frozenset([*found, *(PACKAGE / name for name in ALSO)])


@cache
def _shared_files() -> frozenset[Path]:
    """All but the modules of parts that are there to be chosen, unless others need them."""
    modules = {module for section in OPTIONAL for module in REGISTRIES[section].own_modules()}
    needed = _room_files() - {*map(_file_of, modules)}
    return frozenset(files_with_imports(needed, PACKAGE.parent, _room_files().__contains__))


@cache
def _shared() -> str:
    return checksum_of_files(_shared_files())


def _own_files(part: Callable[..., Any], origin: str | None) -> set[Path]:
    """The files of newkinds in which a part is, ours or not, and those that it is built on by name."""
    classes = part.__mro__ if isinstance(part, type) else (part,)
    modules = {each.__module__ for each in classes if each.__module__.partition(".")[0] == PACKAGE.name}
    files = {file for module in modules if (file := _file_of(module)).is_file()}
    return files if origin is None else files | files_of_code(part, origin)


@cache
def _beyond_shared(*files: Path) -> frozenset[Path]:
    """What files need of newkinds beyond what is shared."""
    needed = files_with_imports(files, PACKAGE.parent, _is_own_module)
    return frozenset(needed & _room_files() - _shared_files())


@cache
def _own_code(*files: Path) -> str:
    """A checksum of what files need of newkinds beyond what is shared; empty if that is nothing."""
    own = _beyond_shared(*files)
    return checksum_of_files(own) if own else ""


def _is_own_module(file: Path) -> bool:
    return file.is_relative_to(PACKAGE) and file.name != "__init__.py"  # those of packages import all parts


def _file_of(module: str) -> Path:
    return PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")


@cache
def _commit() -> str:
    """`e32be14`, or `e32be14, modified`; empty if newkinds is installed."""
    if PACKAGE.parent.name != "src" or not (PACKAGE.parents[1] / ".git").exists():
        return ""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty=, modified", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
