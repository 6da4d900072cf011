"""What a command says, it says once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Cli = Callable[..., tuple[int, str, str]]


def test_discover_and_eval_say_once_what_is_left_out(photos: Path, run_cli: Cli, tmp_path: Path) -> None:
    (photos / "notes.txt").write_text("no image")
    for number in range(3):
        (photos / "unlabeled" / f"broken{number}.png").write_bytes(b"no image")
    run = tmp_path / "run"
    status, _, error = run_cli("discover", photos, "--k", "3", "--out", run)
    assert status == 0, error
    for said in ("1 file that is no image is ignored", "3 files skipped; the first is", "the skipped files are listed"):
        assert error.count(said) == 1, error
    truth = tmp_path / "truth.csv"
    truth.write_text(
        "path,label\n" + "".join(f"unlabeled/{name}{i}.jpg,{name}\n" for name in ("red", "blue") for i in range(4))
    )
    assert run_cli("junk", run, "unlabeled/red0.jpg")[0] == 0
    status, _, error = run_cli("eval", run, "--truth", truth)
    assert status == 0, error
    assert error.count("without a true class left out of the evaluation, such as ") == 1
    assert "such as loose.png" in error or "such as unlabeled/green0.jpg" in error
