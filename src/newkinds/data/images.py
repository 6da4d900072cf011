"""Opening image files that people really have: CMYK, 16-bit, animated, rotated by a tag, broken.

Exported models have a copy of this file, so it imports numpy and Pillow alone, and nothing of newkinds."""

from contextlib import suppress
from ctypes import CDLL, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

import numpy as np
from PIL import Image, ImageOps

SMALLEST_SIDE = 4  # px; below that there is nothing to recognise
LONGEST_SHAPE = 50  # sides' ratio; the shorter side is resized to ~256, so a sliver would grow without bound
ENOUGH = 2048  # px; no network here sees more
MOST_PIXELS = 178_956_970  # Pillow's own limit against decompression bombs

# endings of files that people mean as images, whether they can be read or not
ENDINGS = {
    ".avif", ".bmp", ".dib", ".gif", ".heic", ".heif", ".hif", ".ico", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg",
    ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".psd", ".tga", ".tif", ".tiff", ".webp",
}  # fmt: skip
HEIC_ENDINGS = (".heic", ".heif", ".hif")
HEIC_HINT = "HEIC needs an extra: pip install 'newkinds[heic]'"
TOLD_BY_CONTENT = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # formats with an unmistakable beginning

REASONS: dict[type[Exception], str] = {
    FileNotFoundError: "file not found",
    Image.UnidentifiedImageError: "not an image, or of a kind that cannot be read",
    Image.DecompressionBombError: f"more than {MOST_PIXELS / 1e6:.0f} megapixels: make it smaller",
    MemoryError: "too large for the memory: make it smaller",
    PermissionError: "no permission to read the file",
}


class BadImage(Exception):
    """Why an image cannot be used, in a few words for `skipped.csv`."""


def open_image(path: str | Path, enough: int | None = None) -> Image.Image:
    """Open any image as upright 8-bit RGB; raises `BadImage` with the reason if that is not possible.

    `enough`: pixels a side that are needed (by default 2,048); a larger JPEG may be decoded at a fraction of its size.
    Animations give their first frame, transparent pixels become white, 16-bit greys are scaled (not clipped).
    """
    no_heic = Path(path).suffix.lower() in HEIC_ENDINGS and not can_read_heic()
    try:
        if Path(path).stat().st_size == 0:
            raise BadImage("the file is empty (0 bytes)")
        with Image.open(path) as image:
            if image.format == "TIFF":
                silence_libtiff()
            wanted = enough or ENOUGH
            if image.format == "JPEG" and min(image.size) > 2 * wanted:
                image.draft("RGB", (wanted, wanted))  # decoded at a half, a quarter or an eighth
            _check_shape(*image.size)
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return as_rgb(image)
    except Exception as error:  # decoders raise nearly anything on damaged data
        raise _bad_image(error, no_heic) from None


def look_at_header(path: str | Path) -> tuple[int, int, str]:
    """Width, height and format (such as "JPEG") of an image as its file says, without decoding it; or `BadImage`."""
    no_heic = Path(path).suffix.lower() in HEIC_ENDINGS and not can_read_heic()
    try:
        status = Path(path).stat()
        if not S_ISREG(status.st_mode):  # a pipe would wait for a writer
            raise BadImage("not a file")
        if not status.st_size:
            raise BadImage("the file is empty (0 bytes)")
        with Image.open(path) as image:
            return *image.size, image.format or ""
    except Exception as error:
        raise _bad_image(error, no_heic) from None


def _bad_image(error: Exception, no_heic: bool) -> BadImage:
    """What is wrong with a file, by what was raised when it was opened."""
    if isinstance(error, BadImage):
        return error
    if no_heic and isinstance(error, Image.UnidentifiedImageError):  # else it is called so, but is a JPEG
        return BadImage(HEIC_HINT)
    damaged = f"damaged: {' '.join(str(error).split())[:120] or type(error).__name__}"
    return BadImage(next((why for kind, why in REASONS.items() if isinstance(error, kind)), damaged))


@cache
def can_read_heic() -> bool:
    """Whether the extra that teaches Pillow to read HEIC is installed; looked for when the first such file is met."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


@cache
def silence_libtiff() -> None:
    """Damaged TIFF files make the C library write to stderr itself, line after line; what Pillow raises says enough.

    The library that Pillow is linked with is asked to be silent, once; where it cannot be found, it stays as it is.
    """
    with suppress(OSError, AttributeError):
        library = CDLL(Image.core.__file__)
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            set_handler = getattr(library, name)
            set_handler.argtypes, set_handler.restype = [c_void_p], c_void_p
            set_handler(None)


def is_meant_as_image(path: Path) -> bool:
    """By the file's ending, else by how it begins: pictures without an ending, or with an odd one, are images too."""
    if path.suffix.lower() in ENDINGS:
        return True
    try:
        if not path.is_file():  # a pipe would wait for a writer
            return False
        with Image.open(path, formats=TOLD_BY_CONTENT):
            return True
    except Image.DecompressionBombError:
        return True
    except Exception:
        return False


def content_digest(image: Image.Image) -> str:
    """Of an opened image's pixels, whatever file they came from."""
    return sha256(repr((image.mode, image.size)).encode() + image.tobytes()).hexdigest()[:32]


def _check_shape(width: int, height: int) -> None:
    if min(width, height) < SMALLEST_SIDE:
        raise BadImage(f"too small ({width}×{height} pixels)")
    if max(width, height) > LONGEST_SHAPE * min(width, height):
        raise BadImage(f"too elongated ({width}×{height} pixels)")
    if width * height > MOST_PIXELS:
        raise BadImage(f"too large ({width}×{height} pixels): make it smaller")


def as_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of any opened image: transparent pixels become white, 16-bit greys are scaled."""
    if image.mode == "F" or image.mode.startswith("I"):
        return _scaled_to_8_bit(image).convert("RGB")
    if "A" in image.getbands() or "transparency" in image.info:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _scaled_to_8_bit(image: Image.Image) -> Image.Image:
    """Greys of 16 or more bits: the full range of 16-bit files, or the image's own range if that is wider."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float64), posinf=0.0, neginf=0.0)
    low, high = min(values.min(), 0.0), values.max()
    if image.mode == "F" or low < 0 or high > 65535:
        scale = 255 / (high - low) if high > low else 0.0
    else:
        scale = 255 / 65535 if high > 255 else 1.0
    return Image.fromarray(np.clip((values - low) * scale, 0, 255).round().astype(np.uint8))
