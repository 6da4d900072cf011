"""Opening image files that people really have: CMYK, 16-bit, animated, rotated by a tag, broken.

Files may come from strangers. Only the formats of `FORMATS` are tried, so that no picture starts another program, and
what decoding takes is known from the header: a picture that would take more than `MOST_MEMORY` or `MOST_WORK` is
refused.

Exported models have a copy of this file, so it imports numpy and Pillow alone, and nothing of newkinds."""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import CDLL, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
from PIL import Image

SMALLEST_SIDE = 4  # px; below that there is nothing to recognise
LONGEST_SHAPE = 50  # sides' ratio; the shorter side is resized to ~256, so a sliver would grow without bound
ENOUGH = 2048  # px; no network here sees more
MOST_PIXELS = 178_956_970  # Pillow's own limit against decompression bombs
MOST_MEMORY = 1_000_000_000  # bytes that decoding one picture may take
MOST_WORK = 2_000_000_000  # pixels × scans of a JPEG file, each of which goes over all pixels: about 10 seconds
MOST_KEPT = 32_000_000  # pixels of an opened picture; of more, squares of pixels are averaged
LARGE = 300_000_000  # bytes; pictures that take more are decoded one at a time

# what is opened, the most frequent first; Pillow knows more formats, one of which (EPS) is read by another program
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "HEIF", "AVIF", "JPEG2000", "PPM", "PSD", "DIB", "ICO", "TGA")

HEIC_ENDINGS = (".heic", ".heif", ".hif")
HEIC_HINT = "HEIC needs an extra: pip install 'newkinds[heic]'"

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

    `enough`: pixels a side that are needed (by default 2,048); a much larger image may become smaller.
    Animations give their first frame, and transparent pixels become white. Numbers of more than 8 bits are scaled by
    the image's own range, see `as_rgb`.
    """
    return _open_reduced(path, enough or ENOUGH)[0]


def open_full(path: str | Path) -> tuple[Image.Image, int]:
    """As `open_image`, with all its pixels, so that parts can be cut out; and how many pixels a side are one in it, for
    more than `MOST_KEPT` are averaged even so."""
    return _open_reduced(path, MOST_PIXELS)


def _open_reduced(path: str | Path, wanted: int) -> tuple[Image.Image, int]:
    with opened(path) as image:
        size = image.size
        if image.format == "TIFF":
            silence_libtiff()
        if image.format in ("JPEG", "MPO") and min(size) > 2 * wanted:
            image.draft("RGB", (wanted, wanted))  # decoded at a half, a quarter or an eighth
        check_shape(*image.size)
        needed = _memory_needed(image, size)
        _check_cost(image, size, needed, path)
        if needed <= LARGE:
            return _decoded(image, wanted, path)
        with _one_at_a_time:
            return _decoded(image, wanted, path)


@contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """An image file whose header is read; whatever goes wrong before it is closed is a `BadImage`."""
    without_heic = lacks_heic(path)
    try:
        with open_header(path) as image:
            yield image
    except Exception as error:  # decoders raise nearly anything on damaged data
        raise _bad_image(error, without_heic) from None


def open_header(path: str | Path, formats: tuple[str, ...] = FORMATS) -> Any:
    """The header of an image file, of one of these formats. Nothing else in newkinds opens an image."""
    status = Path(path).stat()
    if not S_ISREG(status.st_mode):  # a pipe would wait for a writer, and a device may never end
        raise BadImage("not a file")
    if not status.st_size:
        raise BadImage("the file is empty (0 bytes)")
    Image.init()  # else Pillow does not know which of these formats it can read
    return Image.open(path, formats=[name for name in formats if name in Image.OPEN])


def _bad_image(error: Exception, no_heic: bool) -> BadImage:
    """What is wrong with a file, by what was raised when it was opened."""
    if isinstance(error, BadImage):
        return error
    if no_heic and isinstance(error, Image.UnidentifiedImageError):  # else it is called so, but is a JPEG
        return BadImage(HEIC_HINT)
    damaged = f"damaged: {' '.join(str(error).split())[:120] or type(error).__name__}"
    return BadImage(next((why for kind, why in REASONS.items() if isinstance(error, kind)), damaged))


def lacks_heic(path: str | Path) -> bool:
    """Whether a file is called as one that needs the extra, which is not there."""
    return Path(path).suffix.lower() in HEIC_ENDINGS and not can_read_heic()


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


def content_digest(image: Image.Image) -> str:
    """Of an opened image's pixels, whatever file they came from."""
    digest = sha256(repr((image.mode, image.size)).encode())
    digest.update(image.tobytes())
    return digest.hexdigest()[:32]


def check_shape(width: int, height: int) -> None:
    if min(width, height) < SMALLEST_SIDE:
        raise BadImage(f"too small ({width}×{height} pixels)")
    if max(width, height) > LONGEST_SHAPE * min(width, height):
        raise BadImage(f"too elongated ({width}×{height} pixels)")
    if width * height > MOST_PIXELS:
        raise BadImage(f"too large ({width}×{height} pixels): make it smaller")


# -- what decoding takes ---------------------------------------------------------------------------------------------

_one_at_a_time = threading.Lock()


def _after_fork() -> None:
    """A process that is split off while a large picture is decoded would wait for ever."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

BYTES_OF_MODE = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}  # that Pillow keeps per pixel; of others 4
DECODERS = {"JPEG2000": 20, "AVIF": 14, "HEIF": 12, "WEBP": 14}  # bytes per pixel of their own; measured, rounded up


def _memory_needed(image: Any, size: tuple[int, int]) -> int:
    """Bytes, at most, to decode an opened image (perhaps at a fraction of its `size`)."""
    pixels, full = image.size[0] * image.size[1], size[0] * size[1]
    of_pixel = BYTES_OF_MODE.get(image.mode, 4)
    if ";16" in _raw_mode(image) and image.mode != "I;16":
        of_pixel *= 2  # high and low bytes are decoded one after the other
    needed = pixels * of_pixel + full * DECODERS.get(image.format, 0)
    if image.format in ("JPEG", "MPO") and _is_progressive(image):
        needed += 2 * len(image.getbands()) * full  # all coefficients are kept until the last scan
    if image.format == "TIFF":
        needed += _part_of_tiff(image)[1] + (pixels * of_pixel if image.getexif().get(ORIENTATION, 1) != 1 else 0)
    return needed + (4 * MOST_KEPT if pixels > MOST_KEPT else 16 * pixels)  # what becomes of it


def _is_progressive(image: Any) -> bool:
    return bool(image.info.get("progressive"))


def _part_of_tiff(image: Any) -> tuple[int, int]:
    """Pixels and bytes of a strip or tile of a TIFF file, which are decoded as one."""
    tags = image.tag_v2
    width, height = int(tags.get(322, image.size[0])), int(tags.get(323, tags.get(278, image.size[1])))
    pixels = max(1, width) * min(max(1, height), max(image.size))
    bits = tags.get(258, (1,))
    return pixels, pixels * sum(bits if isinstance(bits, tuple) else (bits,)) // 8


def _check_cost(image: Any, size: tuple[int, int], needed: int, path: str | Path) -> None:
    """Refuse what would take too much memory or time."""
    width, height = size
    if needed > MOST_MEMORY:
        takes = f"takes about {needed / 1e9:.1f} GB of memory to decode, and {MOST_MEMORY / 1e9:.0f} GB is allowed"
        raise BadImage(f"too large ({width}×{height} pixels): it {takes}. Make it smaller, or save it as baseline JPEG")
    in_tiff = image.format == "TIFF" and "jpeg" in str(image.info.get("compression"))
    if image.format in ("JPEG", "MPO") or in_tiff:
        scanned = _part_of_tiff(image)[0] if in_tiff else width * height
        scans = _count_scans(path)
        if scans * scanned > MOST_WORK and scans > 1:
            raise BadImage(f"too slow to decode ({scans:,} scans of {width}×{height} pixels): save it as baseline JPEG")
    if image.format == "JPEG2000":
        _check_jpeg2000(path)


def _count_scans(path: str | Path) -> int:
    """Of a JPEG file: a progressive one has about ten."""
    scans, before = 0, b""
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            scans += (before + piece).count(b"\xff\xda")
            before = piece[-1:]
    return scans


# -- JPEG 2000, whose parts can be so small that each pixel takes hundreds of bytes ------------------------------------

MOST_TILES = 10_000
MOST_BLOCKS = 1_000_000  # code blocks, of 64×64 pixels usually
MOST_PACKETS = 5_000_000  # precincts × layers


def _check_jpeg2000(path: str | Path) -> None:
    """Refuse a file of millions of parts; pixels alone do not tell how much memory and time it takes."""
    data = Path(path).read_bytes()
    for begins in re.finditer(b"\xff\x4f(?=\xff\x51)", data):
        header = np.frombuffer(data[begins.end() + 6 :][:32], ">u4").astype(object)
        if len(header) < 8:
            return  # too short to be decoded
        width, height, left, top, tile_width, tile_height, tile_left, tile_top = header.tolist()
        colours = int.from_bytes(data[begins.end() + 38 :][:2], "big")
        samples = max(1, width - left) * max(1, height - top) * colours
        tiles = -(-(width - tile_left) // max(1, tile_width)) * -(-(height - tile_top) // max(1, tile_height))
        for layers, block, precinct, levels in _coding_styles(data, begins.end(), colours):
            packets = layers * (samples / precinct + tiles * colours * (levels + 1))
            if tiles > MOST_TILES or samples / block > MOST_BLOCKS or packets > MOST_PACKETS:
                raise BadImage("its JPEG 2000 parts are too many and too small to be decoded safely: save it as PNG")


def _coding_styles(data: bytes, at: int, colours: int) -> Iterator[tuple[int, int, int, int]]:
    """Layers, pixels of a code block, pixels of the smallest precinct, and levels, wherever a codestream names them:
    in its main header, and in those of its tiles."""
    layers, tile, length_of_tile = 1, 0, 0
    while at + 4 <= len(data):
        marker, length = data[at : at + 2], int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        if marker == b"\xff\x90":  # a tile begins
            tile, length_of_tile = at, int.from_bytes(body[2:6], "big")
        elif marker == b"\xff\x93" and length_of_tile > 12:  # its data begin: on to the next tile
            at = tile + length_of_tile
            continue
        elif marker == b"\xff\x52" and len(body) >= 10:  # the style of all colours
            layers = max(layers, int.from_bytes(body[2:4], "big"))
            yield layers, *_parts_of(body[0], body[5:8], body[10:])
        elif marker == b"\xff\x53" and len(body) >= 8:  # the style of one colour, whose number takes one or two bytes
            body = body[1 if colours < 257 else 2 :]
            yield layers, *_parts_of(body[0], body[1:4], body[6:])
        if length < 2 or marker == b"\xff\x93":
            return
        at += 2 + length


def _parts_of(style: int, sizes: bytes, precincts: bytes) -> tuple[int, int, int]:
    """Pixels of a code block, pixels of the smallest precinct, levels."""
    levels, width, height = sizes
    smallest = min([(size & 15) + (size >> 4) for size in precincts if style & 1], default=30)  # as powers of 2
    return 1 << ((width & 15) + (height & 15) + 4), 1 << smallest, levels


# -- 8-bit RGB -------------------------------------------------------------------------------------------------------

ORIENTATION = 0x0112  # tag
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
NO_DATA = 42113  # tag of TIFF files of maps: the number that stands where nothing was measured
AT_ONCE = 1_000_000  # pixels that are converted in one piece
SEEN_THROUGH = 32  # of 255; an alpha channel that is nowhere above this is no picture's transparency
DARK = 64  # of 256 high bytes; colours of 16 bits that stay below fill 14 bits at most
TAIL = 0.005  # share of pixels at either end of the range that may be outliers


def _decoded(image: Any, wanted: int, path: str | Path) -> tuple[Image.Image, int]:
    raw_mode = _raw_mode(image)
    image.load()
    check_shape(*image.size)  # that of an icon is only known now
    factor = _factor(image.size, wanted)
    if is_deep_grey(image):
        nothing = _no_data(image)
        rgb = _grey_by_range(_averaged(image, factor), image.mode == "F", nothing)
    elif ";16" in raw_mode and _is_dark(image):
        rgb = _colours_by_range(image, _low_bytes(path, raw_mode), factor)
    else:
        rgb = _shrunk(image, factor)
    turn = UPRIGHT.get(image.getexif().get(ORIENTATION, 1))
    return rgb if turn is None else rgb.transpose(turn), factor


def _factor(size: tuple[int, int], wanted: int) -> int:
    """How many pixels a side become one: more than is wanted is not kept, nor more than `MOST_KEPT`."""
    factor = min(size) // wanted if min(size) > 2 * wanted else 1
    while size[0] * size[1] > factor**2 * MOST_KEPT:
        factor += 1
    return factor


def as_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of any opened image.

    Transparent pixels become white, but an alpha channel under which nothing could be seen is ignored. Greys of 16 or
    more bits, and floating ones, are scaled by the image's own range, in which outliers do not count.
    """
    return _grey_by_range(_averaged(image), image.mode == "F") if is_deep_grey(image) else _shrunk(image, 1)


def is_deep_grey(image: Image.Image) -> bool:
    """Whether its pixels are numbers of more than 8 bits."""
    return image.mode == "F" or image.mode.startswith("I")


def _shrunk(image: Image.Image, factor: int) -> Image.Image:
    """8-bit RGB, in which `factor` × `factor` pixels are one. Strips of it are converted, so that a large image takes
    hardly more memory than it has."""
    opaque = _is_meaningless(image)
    if factor == 1:
        return _strip_as_rgb(image, opaque)
    width, height = image.size
    small = Image.new("RGB", (-(-width // factor), -(-height // factor)))
    for top, strip in _strips(image, factor):
        small.paste(_strip_as_rgb(strip, opaque).reduce(factor), (0, top // factor))
    return small


def _strips(image: Image.Image, factor: int) -> Iterator[tuple[int, Image.Image]]:
    """Parts of an image from the top to the bottom, of a multiple of `factor` rows: where it begins, and the part."""
    width, height = image.size
    rows = max(1, AT_ONCE // (factor * width)) * factor
    for top in range(0, height, rows):
        yield top, image.crop((0, top, width, min(top + rows, height)))


def _is_meaningless(image: Image.Image) -> bool:
    """Whether an image has an alpha channel under which nothing could be seen, as some programs write it."""
    if "A" in image.getbands():
        extremes: Any = image.getextrema()
        return bool(extremes[-1][1] < SEEN_THROUGH)
    transparency = image.info.get("transparency")
    if image.mode == "P" and isinstance(transparency, bytes):
        used = [number for number, times in enumerate(image.histogram()) if times]
        return all(number < len(transparency) and transparency[number] < SEEN_THROUGH for number in used)
    return False


def _strip_as_rgb(image: Image.Image, opaque: bool) -> Image.Image:
    if "A" in image.getbands() or "transparency" in image.info:
        if opaque:
            return _without_alpha(image)
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _without_alpha(image: Image.Image) -> Image.Image:
    """The colours as they stand, also where they are transparent."""
    image = image.copy()
    image.info.pop("transparency", None)
    return image.convert("RGB")


# -- numbers of more than 8 bits -------------------------------------------------------------------------------------


def _raw_mode(image: Any) -> str:
    """How pixels stand in the file, such as "RGB;16B"; empty if the decoder does not say."""
    arguments = image.tile[0][3] if getattr(image, "tile", None) else ""
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""


def _low_bytes(path: str | Path, raw_mode: str) -> Image.Image | None:
    """Pillow keeps the high bytes of colours of 16 bits. Read in the other order of bytes, these are the low ones."""
    order = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
    if not re.fullmatch("(RGB|RGBA|RGBX);16[BLN]", raw_mode):
        return None
    with open_header(path) as image:
        for number, (decoder, extents, offset, arguments) in enumerate(image.tile):
            rest = arguments[1:] if isinstance(arguments, tuple) else ()
            swapped = raw_mode[:-1] + order[raw_mode[-1]]
            tile: Any = (decoder, extents, offset, (swapped, *rest) if isinstance(arguments, tuple) else swapped)
            image.tile[number] = type(image.tile[number])(*tile) if hasattr(image.tile[number], "_fields") else tile
        image.load()
        low: Image.Image = image
        return low


def _is_dark(image: Image.Image) -> bool:
    """Whether nearly all colours are below a quarter of what the numbers can hold: 12 or 14 bits in 16."""
    colours = np.array(image.histogram()[: 256 * 3]).reshape(-1, 256)[:3].sum(0)  # (256,) without alpha
    return bool(colours[DARK:].sum() <= TAIL * colours.sum())


def _colours_by_range(high: Image.Image, low: Image.Image | None, factor: int) -> Image.Image:
    """Colours of 16 bits whose numbers are small, from black to the largest of these."""
    alpha = None
    if "A" in high.getbands() and not _is_meaningless(high):
        alpha = _averaged(high.getchannel("A"), factor) / 255  # (H, W)
    values = 256 * _averaged(high, factor)[..., :3]  # (H, W, 3)
    if low is not None:
        values += _averaged(low, factor)[..., :3]
    _, top = _range(values, least=0.0)
    values *= 255 / max(top, 1.0)
    if alpha is not None:
        values = values * alpha[..., None] + 255 * (1 - alpha[..., None])
    return Image.fromarray(np.clip(values, 0, 255).round().astype(np.uint8))


def _averaged(image: Image.Image, factor: int = 1) -> np.ndarray:
    """Pixels as numbers, (H, W) or (H, W, bands) float32, the mean of `factor` × `factor` of them each."""
    if factor == 1:
        return np.asarray(image).astype(np.float32)
    strips = []
    for _, strip in _strips(image, factor):
        values = np.asarray(strip).astype(np.float32)
        bands = [values] if values.ndim == 2 else [values[..., band] for band in range(values.shape[2])]
        means = [np.asarray(Image.fromarray(np.ascontiguousarray(band)).reduce(factor)) for band in bands]
        strips.append(means[0] if values.ndim == 2 else np.stack(means, axis=-1))
    return np.concatenate(strips)


def _no_data(image: Any) -> float | None:
    """The number that stands where nothing was measured, if the file names one."""
    with suppress(AttributeError, TypeError, ValueError):
        return float(str(image.tag_v2[NO_DATA]).strip("\0 ")) if NO_DATA in image.tag_v2 else None
    return None


def _grey_by_range(values: np.ndarray, floating: bool, nothing: float | None = None) -> Image.Image:
    """Greys (H, W) from the lowest to the highest, as RGB; what is no number, or `nothing`, becomes black.

    Whole numbers that hardly differ, such as those of a covered lens, keep little contrast.
    """
    bad = ~np.isfinite(values)
    if nothing is not None:
        bad |= values == np.float32(nothing)
    good = values[~bad] if bad.any() else values
    low, high = _range(good) if good.size else (0.0, 0.0)
    span = high - low if floating else max(high - low, high / 16)
    scaled = (np.where(bad, low, values) if bad.any() else values).astype(np.float64)
    np.clip(scaled, low, high, out=scaled)
    scaled -= low
    scaled *= 255 / span if span > 0 else 0.0
    return Image.fromarray(scaled.round().astype(np.uint8)).convert("RGB")


def _range(values: np.ndarray, least: float | None = None) -> tuple[float, float]:
    """The lowest and the highest number that count: all, unless a few are far away from the others.

    Nearly all numbers span a range; numbers further away than once more that range are outliers, such as hot pixels.
    """
    some = values.reshape(-1)[:: max(1, values.size // 1_000_000)].astype(np.float64)
    low, high = np.quantile(some, [TAIL, 1 - TAIL]).tolist()
    low = low if least is None else least
    lowest, highest = float(values.min()) if least is None else least, float(values.max())
    if high <= low:  # nearly all are equal: what differs is the picture
        return lowest, highest
    return max(lowest, 2 * low - high), min(highest, 2 * high - low)
