"""`newkinds data check` on miniature copies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from layouts import lay_out_cifar10, lay_out_cub, lay_out_herbarium, lay_out_repackaged_cars, put
from newkinds.data.published import BENCHMARKS
from newkinds.data.published.base import Listing
from newkinds.data.published.benchmark_check import check_benchmarks
from newkinds.data.splits import split_checksum
from newkinds.data.table import DATASETS, readable
from newkinds.errors import NewkindsError

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def small_cub(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUB as if the miniature were the whole of it."""
    small = replace(
        BENCHMARKS["cub"], images={"train": 400, "test": 200}, published=("0.1k", "0.3k"), checksum="08f2f37e70b10510"
    )
    monkeypatch.setitem(BENCHMARKS, "cub", small)


def found(root: Path, name: str = "cub") -> dict[str, str]:
    return dict(check_benchmarks([name], root)[0].findings)


@pytest.mark.usefixtures("small_cub")
def test_a_complete_copy(tmp_path: Path, run_cli: Cli) -> None:
    lay_out_cub(tmp_path)
    status, out, _ = run_cli("data", "check", "cub", "--data-root", tmp_path)
    assert status == 0
    assert "400 of 400 images can be read" in out
    assert "200 of 200 images can be read" in out
    assert "100 known, 100 new (class list cub 768276449bca0ac6)" in out
    assert "100 labelled, 300 unlabelled (published: 0.1k and 0.3k), checksum 08f2f37e70b10510, as of a" in out
    assert "usable as published" in out


@pytest.mark.usefixtures("small_cub")
def test_the_checksum_is_that_of_a_run(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    (folder / "images/001.Bird_1/Bird_1_2.jpg").unlink()
    table = readable(DATASETS["cub"](root=str(tmp_path)))
    assert f"checksum {split_checksum(table)}, not 08f2f37e70b10510" in found(tmp_path)["split"]


@pytest.mark.usefixtures("small_cub")
def test_without_test_images_a_copy_is_usable(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    for image in folder.glob("images/*/*_0.jpg"):
        image.unlink()
    report = check_benchmarks(["cub"], tmp_path)[0]
    assert report.usable
    assert dict(report.findings)["test"] == "none of 200 images is available (only needed for inductive evaluation)"


@pytest.mark.usefixtures("small_cub")
def test_missing_and_truncated_training_images_are_named(tmp_path: Path, run_cli: Cli) -> None:
    folder = lay_out_cub(tmp_path)
    for c in range(1, 5):
        (folder / f"images/{c:03d}.Bird_{c}/Bird_{c}_1.jpg").unlink()
    whole = (folder / "images/005.Bird_5/Bird_5_1.jpg").read_bytes()
    put(folder / "images/001.Bird_1/Bird_1_2.jpg", whole[:-40])
    status, out, _ = run_cli("data", "check", "cub", "--data-root", tmp_path)
    assert status == 1
    assert "395 of 400 images can be read" in out
    assert "images/001.Bird_1/Bird_1_1.jpg: file not found (images.txt line 2)" in out
    assert "images/001.Bird_1/Bird_1_2.jpg: damaged" in out
    assert "… and 2 more" in out
    assert "the published protocol cannot be followed: 5 of 400 images cannot be read" in out


def test_a_copy_with_too_few_images_is_not_as_published(tmp_path: Path) -> None:
    lay_out_cub(tmp_path)
    report = check_benchmarks(["cub"], tmp_path)[0]
    assert not report.usable
    assert "lists 400 training images instead of 5,994" in dict(report.findings)["verdict"]
    lay_out_herbarium(tmp_path)  # whose number of images is not known here
    verdict = found(tmp_path, "herbarium19")["verdict"]
    assert "341 labelled and 1,025 unlabelled images instead of 8.9k and 25.4k" in verdict
    lay_out_repackaged_cars(tmp_path)
    assert "another order than the devkit" in found(tmp_path, "cars")["verdict"]


def test_a_copy_that_cannot_be_read(tmp_path: Path) -> None:
    folder = lay_out_cifar10(tmp_path)
    put(folder / "data_batch_2", b"cut")
    report = check_benchmarks(["cifar10"], tmp_path)[0]
    assert not report.usable
    assert "data_batch_2 is damaged or truncated" in dict(report.findings)["train"]
    assert "10 of 10,000 images can be read" in dict(report.findings)["test"]


def test_an_error_nobody_thought_of_does_not_hide_the_other_sets(
    tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, part: str) -> Listing:
        raise IndexError("list index out of range")

    lay_out_cub(tmp_path)
    lay_out_cifar10(tmp_path)
    monkeypatch.setitem(BENCHMARKS, "cub", replace(BENCHMARKS["cub"], read=fail))
    status, out, _ = run_cli("data", "check", "cub", "cifar10", "--data-root", tmp_path)
    assert status == 1
    assert "error    IndexError: list index out of range (this may be a bug in newkinds)" in out
    assert "100 of 50,000 images can be read" in out


def test_what_is_not_there(tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEWKINDS_DATA", raising=False)
    status, out, _ = run_cli("data", "check")
    assert status == 1
    for name in BENCHMARKS:
        assert f"{name}: " in out
    assert out.count("(not found)") == len(BENCHMARKS)
    status, _, err = run_cli("data", "check", "cubs")
    assert (status, "Did you mean 'cub'" in err) == (1, True)
    assert run_cli("data")[0] == 2


@pytest.mark.usefixtures("small_cub")
def test_one_usable_set_is_enough_if_none_is_named(tmp_path: Path, run_cli: Cli) -> None:
    lay_out_cub(tmp_path)
    assert run_cli("data", "check", "--data-root", tmp_path)[0] == 0
    assert run_cli("data", "check", "cub", "cars", "--data-root", tmp_path)[0] == 1


def test_an_archive_that_was_not_unpacked_is_named(tmp_path: Path) -> None:
    archive = put(tmp_path / "CUB_200_2011.tgz")
    with pytest.raises(NewkindsError) as error:
        DATASETS["cub"](root=str(tmp_path))
    assert f"Unpack {archive} first." in str(error.value).splitlines()
    assert found(tmp_path)["missing"] == str(error.value)


def test_checking_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from newkinds.cli import main\n"
        f"main(['data', 'check', 'cub', '--data-root', {str(tmp_path)!r}])\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_names_are_checked_in_python_too() -> None:
    with pytest.raises(NewkindsError, match="no benchmark data set called 'creatures'"):
        check_benchmarks(["creatures"])
