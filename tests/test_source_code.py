"""Checksums of code: what changes them, and what does not."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from newkinds.source_code import checksum_of_code, checksum_of_files, files_with_imports

PART = '"""A part."""\nfrom beside import WEIGHT\n\n\ndef part(x):\n    """Weighs."""\n    return WEIGHT * x  # why\n'


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The checksum of a part in a file, which imports another one."""
    monkeypatch.syspath_prepend(tmp_path)

    def checksum(part: str = PART, other: str = "WEIGHT = 1.0\n") -> str:
        for name, text in (("the_part", part), ("beside", other), ("not_imported", f"X = {len(part)}")):
            (tmp_path / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return checksum_of_code(importlib.import_module("the_part").part)

    return checksum


def test_what_the_code_does_counts_and_how_it_is_written_does_not(beside: Callable[..., str]) -> None:
    first = beside()
    same = PART.replace("# why", "# because").replace("A part", "The part").replace("Weighs", "Much")
    assert beside(same) == first
    assert beside(PART.replace("WEIGHT * x", "( WEIGHT*x )")) == first
    assert beside(PART.replace("* x", "+ x")) != first
    assert beside(other="WEIGHT = 3.0\n") != first, "a file that it imports"
    assert beside() == first


def test_imports_are_followed_inside_a_package_and_in_functions(tmp_path: Path) -> None:
    package = tmp_path / "kinds"
    texts = {
        "__init__.py": "", "a.py": "def f():\n    from .inner import c\n", "inner/__init__.py": "from . import d",
        "inner/c.py": "import kinds.b\nimport torch", "inner/d.py": "", "b.py": "from . import a", "alone.py": "",
    }  # fmt: skip
    for name, text in texts.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    found = files_with_imports([package / "a.py"], tmp_path, lambda file: True)
    names = {file.relative_to(package).as_posix() for file in found}
    assert names == {"a.py", "b.py", "inner/__init__.py", "inner/c.py", "inner/d.py", "__init__.py"}


def test_a_file_that_is_no_python_has_a_checksum_too(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print 'two'")
    first = checksum_of_files([tmp_path / "old.py"])
    (tmp_path / "old.py").write_text("print 'three'")
    assert checksum_of_files([tmp_path / "old.py"]) != first


NOTEBOOK = """
import users_losses

SCALE = 2.0
SIZES = {"small", "large"}
UNUSED = 1

def weigh(x):
    return SCALE * x

class Part:
    rate = 0.1

    weights = (1, [2])

    def loss(self, x, kind="small"):
        return users_losses.total(weigh(x)) if kind in SIZES and kind in {"one", "two", "three"} else 0

    @staticmethod
    def shape():
        return 3
"""


@pytest.fixture
def users_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file beside the notebook."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_losses", raising=False)
    file = tmp_path / "users_losses.py"
    file.write_text("def total(x):\n    return x\n")
    return file


def in_notebook(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The checksum of a part whose source Python cannot find, as if it had been typed in."""
    module = types.ModuleType("__main__")
    exec(compile(text, "<typed in>", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", module)
    return checksum_of_code(module.Part)


def test_a_part_of_a_notebook_is_known_by_its_code_and_what_that_uses(
    users_losses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = in_notebook(NOTEBOOK, monkeypatch)
    assert in_notebook(NOTEBOOK.replace("UNUSED = 1", "UNUSED = 2"), monkeypatch) == first
    assert in_notebook("# another cell\n" + NOTEBOOK, monkeypatch) == first
    changes = {
        "SCALE = 2": "SCALE = 3", "SCALE * x": "SCALE + x", "rate = 0.1": "rate = 0.2", "return 3": "return 4",
        "[2]": "[3]", 'large"': 'huge"', 'kind="small"': 'kind="large"', '"three"': '"four"',
    }  # fmt: skip
    for before, after in changes.items():
        assert in_notebook(NOTEBOOK.replace(before, after), monkeypatch) != first, after
    users_losses.write_text("def total(x):\n    return 2 * x\n")
    assert in_notebook(NOTEBOOK, monkeypatch) != first, "a file beside the notebook"


def test_a_notebook_gives_the_same_checksum_in_every_process(users_losses: Path) -> None:
    """Whatever order sets have in it."""
    program = f"exec(compile({NOTEBOOK!r}, '<typed in>', 'exec'))\n"
    program += "from newkinds.source_code import checksum_of_code\nprint(checksum_of_code(Part))"
    found = set()
    path = os.pathsep.join([str(users_losses.parent), *sys.path])
    for seed in ("1", "2", "3"):
        variables = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        command = [sys.executable, "-c", program]
        found.add(subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_long_expressions_are_no_matter(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("x = " + " + ".join(["1"] * 3000) + "\n")
    first = checksum_of_files([tmp_path / "long.py"])
    (tmp_path / "long.py").write_text("x = " + " + ".join(["1"] * 2999 + ["2"]) + "\n")
    assert checksum_of_files([tmp_path / "long.py"]) != first
