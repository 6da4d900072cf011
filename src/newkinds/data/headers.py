"""What an image file says of itself, without being decoded: whether it is one, its size and format, which way up it is,
and what a camera wrote beside it."""

from pathlib import Path
from typing import Any

from PIL import Image

from .images import ORIENTATION, UPRIGHT, open_header, opened

# endings of files that people mean as images, whether they can be read or not
ENDINGS = {
    ".avif", ".bmp", ".dib", ".gif", ".heic", ".heif", ".hif", ".ico", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg",
    ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".psd", ".tga", ".tif", ".tiff", ".webp",
}  # fmt: skip
TOLD_BY_CONTENT = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # formats with an unmistakable beginning
CAMERA = 0x8769  # tag of those that are about the exposure
SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height


def is_meant_as_image(path: Path) -> bool:
    """By the file's ending, else by how it begins: pictures without an ending, or with an odd one, are images too."""
    if path.suffix.lower() in ENDINGS:
        return True
    try:
        with open_header(path, TOLD_BY_CONTENT):
            return True
    except Image.DecompressionBombError:
        return True
    except Exception:
        return False


def look_at_header(path: str | Path) -> tuple[int, int, str]:
    """Width, height and format (such as "JPEG") of an image as its file says, without decoding it; or `BadImage`."""
    with opened(path) as image:
        return *image.size, image.format or ""


def upright_size(path: str | Path) -> tuple[int, int]:
    """Width and height of an image as `open_image` shows it, without decoding it; or `BadImage`."""
    with opened(path) as image:
        width, height = image.size
        if image.format == "TIFF":  # whose size some releases of Pillow exchange by themselves
            width, height = image.tag_v2[256], image.tag_v2[257]
        is_sideways = image.getexif().get(ORIENTATION, 1) in SIDEWAYS
        return (height, width) if is_sideways else (width, height)


def is_turned(path: str | Path) -> bool:
    """Whether an image has a tag that says that its pixels are to be turned or mirrored."""
    return read_exif(path).get(ORIENTATION, 1) in UPRIGHT


def read_exif(path: str | Path) -> dict[int, Any]:
    """What a camera wrote beside an image, by the number of the tag; nothing if it cannot be read."""
    try:
        with open_header(path) as image:
            exif = image.getexif()
            return {**exif, **exif.get_ifd(CAMERA)}
    except Exception:  # as `open_image`
        return {}
