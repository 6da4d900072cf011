"""What is installed, from where and under which licence, and that what we build is whole."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import list_licences  # noqa: E402


def test_every_dependency_has_its_licence_listed() -> None:
    lines = list_licences.listed()
    required = list_licences.required()
    assert {"torch", "scikit-learn", "starlette", "infomap", "pytest"} <= set(required)
    assert set(required) <= set(lines)
    for package, extra in required.items():
        _, name, needed_for, licence, _ = (cell.strip() for cell in lines[package].split("|"))
        assert (name, needed_for) == (package, extra)
        assert len(licence) > 2, package
        copyleft = re.search(r"\bA?GPL", licence) and "LGPL" not in licence
        assert not copyleft or extra == "infomap", f"{package}: {licence}"  # the only one, an extra that says so


def test_the_oldest_releases_are_those_that_are_promised() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    block = text[text.index("\ndependencies = [") : text.index("\n[project.optional-dependencies]")]
    promised = {}
    for quoted in re.findall(r'"([^"]+)"', block):
        requirement = Requirement(quoted)
        (least,) = [s.version for s in requirement.specifier if s.operator == ">="]
        promised[requirement.name] = Version(least)
    lines = (ROOT / "constraints" / "oldest.txt").read_text("utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if not line.startswith("#")]
    assert {r.name: Version(next(iter(r.specifier)).version) for r in pinned} == promised


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and an sdist of a copy."""
    folder = tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "copy" / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "copy")
    program = "from setuptools import build_meta as b; b.build_wheel('../out'); b.build_sdist('../out')"
    (folder / "out").mkdir()
    done = subprocess.run([sys.executable, "-c", program], cwd=folder / "copy", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_wheel_and_sdist_hold_every_file(built: Path) -> None:
    package = ROOT / "src" / "newkinds"
    files = {
        f"newkinds/{file.relative_to(package).as_posix()}"
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert sum(not file.endswith(".py") for file in files) > 50  # recipes, class lists, pages, weights
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        assert files <= set(wheel.namelist())
        (entry,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
        assert "newkinds = newkinds.__main__:main" in wheel.read(entry).decode()
        assert any(name.endswith("/LICENSE") for name in wheel.namelist())
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
        assert {f"src/{file}" for file in files} | {"pyproject.toml", "README.md", "LICENSE"} <= inside
