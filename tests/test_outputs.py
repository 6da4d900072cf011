"""Where --out and --plot lead: links, devices and pipes are written to, and no input is replaced."""

from __future__ import annotations

import csv
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds
from conftest import save_image
from newkinds.errors import NewkindsError
from newkinds.files import write_whole

Cli = Callable[..., tuple[int, str, str]]
posix = pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and devices")


@posix
def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name, target in {"link": "there/kept", "dangling": "there/made", "chain": "link"}.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "there" / "kept").write_text("old")
    for name, file in {"link": "kept", "dangling": "made", "chain": "kept"}.items():
        write_whole(tmp_path / name, name)
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "there" / file).read_text() == name
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == ["kept", "made"]


@posix
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_whole(tmp_path / "pipe", b"x" * 1_000_000)
    reader.join(timeout=20)
    assert got == [b"x" * 1_000_000]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def device(path: Path, minor: int) -> Path:
    """Like /dev/null (3) or /dev/full (7), but of the test's own: a mistake must not cost the machine its device."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("only root can make a device, and not everywhere")
    return path


@posix
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    null, full = device(tmp_path / "null", 3), device(tmp_path / "full", 7)
    write_whole(null, "gone")
    with pytest.raises(NewkindsError, match=r"cannot write .*full: No space left on device\.$"):
        write_whole(full, "x" * 100_000)
    assert stat.S_ISCHR(null.stat().st_mode)
    assert stat.S_ISCHR(full.stat().st_mode)


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"cannot write .*: Is a directory"):
        write_whole(tmp_path, "x")


@posix
@pytest.mark.parametrize("name", ["/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("mode", ["pipe", "wb", "ab"])
def test_standard_output_by_its_name(tmp_path: Path, name: str, mode: str) -> None:
    """Also where it is redirected to a file, with > or with >>."""
    code = f"from pathlib import Path; from newkinds.files import write_whole; write_whole(Path({name!r}), 'new')"
    file = tmp_path / "file"
    file.write_text("old")
    inode = file.stat().st_ino
    if mode == "pipe":
        assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"new"
        return
    with open(file, mode.replace("b", "")) as redirected:
        subprocess.run([sys.executable, "-c", code], stdout=redirected, check=True)
        redirected.write("later")  # whoever writes next into the same stream
    assert file.read_text() == {"wb": "newlater", "ab": "oldnewlater"}[mode]
    assert file.stat().st_ino == inode


@posix
def test_predictions_go_through_standard_output(trained_run: Path, tmp_path: Path) -> None:
    save_image(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    command = [sys.executable, "-m", "newkinds", "predict", trained_run, tmp_path / "a.png", tmp_path / "b.png"]
    done = subprocess.run([*command, "--out", "/dev/fd/1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["path"] for row in csv.DictReader(done.stdout.splitlines())] == [str(tmp_path / "a.png")]
    assert "b.png skipped" in done.stderr


@pytest.mark.parametrize("kind", ["itself", "in the folder", "link", "hard link", "model", "skipped"])
def test_a_prediction_does_not_replace_what_it_reads(
    run_cli: Cli, trained_run: Path, tmp_path: Path, kind: str
) -> None:
    photo = save_image(tmp_path / "photos" / "a.png")
    read, out = photo, photo
    if kind == "in the folder":
        read = photo.parent
    elif kind == "link":
        out = tmp_path / "link.csv"
        out.symlink_to(photo)
    elif kind == "hard link":
        out = tmp_path / "other name.csv"
        os.link(photo, out)
        read = photo.parent
    elif kind == "model":
        out = trained_run / "model.safetensors"
    elif kind == "skipped":
        read = photo.rename(photo.with_name("a.skipped.csv"))
        out = photo.with_name("a.csv")
    before = read.read_bytes() if read.is_file() else photo.read_bytes()
    status, _, err = run_cli("predict", trained_run, read, "--out", out)
    assert status == 1
    assert "would be replaced, but it is an input" in err
    assert (read if read.is_file() else photo).read_bytes() == before


def test_an_earlier_table_among_the_images_is_replaced(run_cli: Cli, trained_run: Path, tmp_path: Path) -> None:
    save_image(tmp_path / "photos" / "a.png")
    for _ in range(2):
        status, _, err = run_cli("predict", trained_run, tmp_path / "photos", "--out", tmp_path / "photos" / "p.csv")
        assert status == 0, err
    named = tmp_path / "photos" / "p.csv"
    assert run_cli("predict", trained_run, named, "--out", named)[0] == 1


@pytest.mark.parametrize("kind", ["folder", "csv", "list itself", "weights"])
def test_a_plot_does_not_replace_what_is_counted(run_cli: Cli, photos: Path, tmp_path: Path, kind: str) -> None:
    source, out, options = photos, photos / "red" / "0.png", []
    if kind in ("csv", "list itself"):
        source = tmp_path / "list.csv"
        lines = [f"{file},{file.parent.name if file.suffix == '.png' else ''}" for file in photos.glob("*/*")]
        source.write_text("\n".join(["path,label", *lines]))
    if kind == "list itself":
        out = source
    if kind == "weights":
        out = tmp_path / "w.safetensors"
        out.write_bytes(newkinds.encoders.backbones.weights_file("tiny").read_bytes())
        options = ["--backbone", "tiny", "--weights", out]
    before = out.read_bytes()
    status, _, err = run_cli("count", source, "--plot", out, *options)
    assert status == 1
    assert "would be replaced, but it is an input" in err
    assert out.read_bytes() == before


def test_a_plot_goes_where_it_is_asked_for(run_cli: Cli, photos: Path, tmp_path: Path) -> None:
    status, _, err = run_cli("count", photos, "--plot", tmp_path / "new" / "curve.png")
    assert status == 0, err
    assert (tmp_path / "new" / "curve.png").read_bytes().startswith(b"\x89PNG")
