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
        assert lines[package][:2] == [package, extra]


def test_what_dependencies_bring_along_has_its_licence_listed() -> None:
    lines, brought = list_licences.listed(), list_licences.brought()
    assert {"sympy", "joblib", "contourpy", "tqdm"} <= set(brought), "of torch, scikit-learn, matplotlib and the hub"
    assert not {name for name, (_, needed_for) in brought.items() if needed_for == "always"} - set(lines)
    assert brought["joblib"] == ("scikit-learn", "always")
    assert all("Proprietary" in row[-1] for name, row in lines.items() if name.startswith("nvidia-"))


def test_no_user_gets_copyleft_unasked() -> None:
    for package, (*_, needed_for, licence) in list_licences.listed().items():
        assert len(licence) > 2, package
        copyleft = re.search(r"\bA?GPL|General Public", licence) and not re.search("LGPL|Lesser", licence)
        # two extras that say so; and docutils, of which little is under the GPL, makes the site
        assert not copyleft or needed_for in ("infomap", "heic", "docs"), f"{package}: {licence}"


def test_the_oldest_releases_are_those_that_are_promised() -> None:
    of_users = ("always", "clip", "studio", "heic")  # onnx needs new releases of torch; see constraints/oldest.txt
    promised = {}
    for requirement, needed_for in list_licences.requirements():
        if needed_for in of_users and requirement.name != "newkinds":
            (least,) = [s.version for s in requirement.specifier if s.operator == ">="]
            promised[requirement.name] = Version(least)
    assert {"torch", "pillow", "open_clip_torch", "starlette", "pillow-heif"} <= set(promised)
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
