"""Frames of videos as images; without PyAV, one sentence that names the extra."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import save_image
from newkinds.data import load_table, source_of
from newkinds.data.fragments import Box, Part
from newkinds.data.images import BadImage
from newkinds.data.parts import open_part, size_of_whole
from newkinds.data.table import readable
from newkinds.data.videos import frame_times, open_frame

RATE, FRAMES, STEP = 10, 45, 5  # frame number i is grey of 5·i


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """4.5 seconds that grow lighter, and lighter still in the lower half."""
    av = pytest.importorskip("av", reason="PyAV is not installed (the extra video has it)")
    file = tmp_path_factory.mktemp("clip") / "clip.mp4"
    with av.open(str(file), "w") as container:
        stream = container.add_stream("mpeg4", rate=RATE)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 64, 48, "yuv420p", 12
        for number in range(FRAMES):
            pixels = np.full((48, 64, 3), number * STEP, np.uint8)
            pixels[24:] += 20
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return file.read_bytes()


@pytest.fixture
def folder(tmp_path: Path, clip: bytes) -> Path:
    save_image(tmp_path / "owl" / "a.png")
    (tmp_path / "unlabeled").mkdir()
    (tmp_path / "unlabeled" / "clip.mp4").write_bytes(clip)
    (tmp_path / "unlabeled" / "broken.MOV").write_bytes(b"\0\0\0\x20ftyp nothing")
    return tmp_path


def load(source: Path, **settings: Any) -> Any:
    return readable(load_table({**source_of(source), **settings}), contents=True)


def test_a_video_gives_a_frame_every_second(folder: Path) -> None:
    table = load(folder)
    names = [str(Path("unlabeled") / f"clip.mp4#t={second}") for second in range(5)]
    assert table.paths == [str(Path("owl") / "a.png"), *names]
    assert table.labels == ["owl", *[None] * 5]
    assert table.groups == [None, *[str(Path("unlabeled") / "clip.mp4")] * 5]
    for second in range(5):
        grey = np.asarray(table.open(1 + second))[:20].mean()
        assert grey == pytest.approx(second * RATE * STEP, abs=6)
    [skipped] = table.skipped
    assert Path(skipped.path).name == "broken.MOV"
    assert "damaged video" in skipped.reason
    again = load(folder, frame_every=0.25, most_frames=3, separate_frames=True)
    assert again.paths[1:] == [str(Path("unlabeled") / f"clip.mp4#t={t}") for t in ("0", "1.5", "3")]
    assert again.groups is None


def test_boxes_in_frames(folder: Path) -> None:
    video = folder / "unlabeled" / "clip.mp4"
    assert size_of_whole(video, Part(time=2.0)) == (64, 48)
    upper, lower = (open_part(video, Part(2.0, Box(10, y, 30, 16))) for y in (4, 30))
    assert upper.size == lower.size == (30, 16)
    assert np.asarray(lower).mean() - np.asarray(upper).mean() == pytest.approx(20, abs=4)
    listed = folder / "unlabeled" / "list.csv"
    lines = [
        'clip.mp4,,"10,4,30,16",',
        'clip.mp4#t=3,b,"10,4,30,16",',
        "clip.mp4#t=0.3,,,mine",
        'clip.mp4#t=1,a,"0,0,9,9",',
    ]
    listed.write_text("path,label,box,group\n" + "\n".join(lines), "utf-8")
    table = load(listed, frame_every=3)
    boxes = ["clip.mp4#t=0&xywh=10,4,30,16", "clip.mp4#t=3&xywh=10,4,30,16"]
    assert table.paths == [*boxes, "clip.mp4#t=0.3", "clip.mp4#t=1&xywh=0,0,9,9"]
    assert table.labels == [None, "b", None, "a"]
    assert table.groups == ["clip.mp4", None, "mine", None], "a frame that is named itself is in no group"


def test_files_that_are_called_so_but_name_others_are_not_followed(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="PyAV is not installed (the extra video has it)")
    for name, text in (
        ("list.mp4", "#EXTM3U\nfile:///etc/passwd\n"),
        ("list.avi", "ffconcat version 1.0\nfile a.mp4\n"),
    ):
        (tmp_path / name).write_text(text, "utf-8")
        with pytest.raises(BadImage, match="damaged video"):
            frame_times(tmp_path / name, 1.0, 9)
    with pytest.raises(BadImage, match="file not found"):
        open_frame(tmp_path / "gone.mp4", 0)


def test_without_the_extra_videos_are_skipped_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    save_image(tmp_path / "a.png")
    (tmp_path / "clip.mp4").write_bytes(b"whatever")
    table = load(tmp_path)
    assert table.paths == ["a.png"]
    assert [(skipped.path, skipped.reason) for skipped in table.skipped] == [
        ("clip.mp4", "videos need an extra: pip install 'newkinds[video]'")
    ]
