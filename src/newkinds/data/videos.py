"""Frames of video files, by PyAV (extra `video`).

A file is opened as what its ending says, and from its own bytes alone: none of the formats of FFmpeg that name other
files or addresses, such as playlists, is ever tried."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from .images import MOST_PIXELS, BadImage, check_shape

# ending → FFmpeg's name of the container
CONTAINERS = {
    ".3gp": "mov", ".avi": "avi", ".m2ts": "mpegts", ".m4v": "mov", ".mkv": "matroska", ".mov": "mov", ".mp4": "mov",
    ".mpeg": "mpeg", ".mpg": "mpeg", ".mts": "mpegts", ".webm": "matroska", ".wmv": "asf",
}  # fmt: skip
HINT = "videos need an extra: pip install 'newkinds[video]'"
LONGEST = 100_000.0  # seconds that a container may claim
MOST_DECODED = 2_000  # frames between a key frame and the one that is wanted
OPTIONS = {"enable_drefs": "0", "use_absolute_path": "0", "protocol_whitelist": "file"}


def is_video(file: str | Path) -> bool:
    """By its ending."""
    return Path(file).suffix.lower() in CONTAINERS


def frame_times(file: Path, every: float, most: int) -> list[float]:
    """When to look at a video: at its beginning and then every so many seconds; at `most` times, spread evenly."""
    with _opened(file) as (container, stream):
        length = _length(container, stream)
    count = max(1, math.ceil(length / every - 1e-9))
    if count > most:
        every, count = length / most, most
    return [round(number * every, 3) for number in range(count)]


def open_frame(file: Path, time: float) -> Image.Image:
    """The upright RGB picture that is shown at a time (seconds); after the end, the last one."""
    with _opened(file) as (container, stream):
        first = float((stream.start_time or 0) * stream.time_base)
        wanted = first + time
        if time > 0:
            container.seek(round(wanted / stream.time_base), stream=stream)
        frame = None
        for number, one in enumerate(container.decode(stream)):
            if frame is not None and one.time is not None and one.time > wanted + 1e-6:
                break
            frame = one
            if number > MOST_DECODED:
                raise BadImage(f"more than {MOST_DECODED:,} frames follow a key frame: encode the video again")
        if frame is None:
            raise BadImage(f"the video has no frame at {time:g} s")
        check_shape(frame.width, frame.height)
        picture = frame.to_image()
        turned = int(getattr(frame, "rotation", 0)) % 360
        return picture.rotate(turned, expand=True) if turned else picture


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, Any]]:
    """A container and its first video stream; whatever is wrong with it is `BadImage`."""
    try:
        import av
    except ImportError:
        raise BadImage(HINT) from None
    try:
        with open(file, "rb") as opened:
            form = CONTAINERS.get(file.suffix.lower())
            if form is None:
                raise BadImage("it is called neither as a picture nor as a video")
            with av.open(opened, format=form, options=OPTIONS) as container:
                if not container.streams.video:
                    raise BadImage("the file has no moving pictures")
                stream = container.streams.video[0]
                if stream.width * stream.height > MOST_PIXELS:
                    raise BadImage(f"too large ({stream.width}×{stream.height} pixels)")
                stream.thread_type = "AUTO"
                yield container, stream
    except BadImage:
        raise
    except FileNotFoundError:
        raise BadImage("file not found") from None
    except Exception as error:  # a decoder may raise nearly anything on damaged data
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise BadImage(f"damaged video: {' '.join(said.split())[:120]}") from None


def _length(container: Any, stream: Any) -> float:
    """Seconds, as the file says."""
    if stream.duration:
        seconds = float(stream.duration * stream.time_base)
    elif container.duration:
        seconds = container.duration / 1e6
    elif stream.frames and stream.average_rate:
        seconds = float(stream.frames / stream.average_rate)
    else:
        raise BadImage("the video does not say how long it is: encode it again")
    if not 0 < seconds <= LONGEST:
        raise BadImage(f"the video claims to last {seconds:g} seconds")
    return seconds
