"""What stands beside the figures of a run."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import newkinds
from layouts import lay_out_cifar10
from newkinds.runs.protocol import describe_protocol, package_versions
from newkinds.runs.run import Run


def test_a_split_that_is_not_the_published_one_is_said_beside_every_figure(tmp_path: Path) -> None:
    lay_out_cifar10(tmp_path)
    settings = {"train": {"epochs": 1, "batch_size": 16, "workers": 0}, "backbone": {"image_size": 32}}
    newkinds.discover("cifar10", tmp_path / "run", data_root=tmp_path, settings=settings)
    said = "this copy lists 100 training images instead of 50,000"
    rows = list(newkinds.evaluate(tmp_path / "run")["protocol"].items())
    place = [name for name, _ in rows].index("split")
    assert rows[place + 1] == ("not as published", said)
    assert said in (tmp_path / "run" / "README.md").read_text()


def test_nothing_is_said_of_images_that_nobody_published(trained_run: Path) -> None:
    assert "not as published" not in dict(describe_protocol(Run(trained_run)))


def test_our_version_is_named_where_newkinds_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("newkinds.runs.protocol.version", not_installed)
    assert package_versions().endswith(f", newkinds {newkinds.__version__}")
