"""Pictures that would become black or white, start a program, or take all memory; and the one place that opens them."""

from __future__ import annotations

import ast
import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import newkinds
from newkinds.data import images
from newkinds.data.headers import ENDINGS, is_meant_as_image, look_at_header
from newkinds.data.images import BadImage, open_image

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\nshowpage\n%%EOF\n"
BEGINS = b"\x89PNG\r\n\x1a\n"
TEXTURE = np.random.default_rng(0).integers(200, 4096, (48, 64))  # 12 bits, with the offset of a camera


# -- formats ---------------------------------------------------------------------------------------------------------


def test_a_photo_that_is_postscript_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given, **named: started.append(given))
    photo = tmp_path / "IMG_0001.jpg"
    photo.write_bytes(POSTSCRIPT)
    with Image.open(photo) as image:  # Pillow alone would hand it to Ghostscript
        assert image.format == "EPS"
    for open_it in (open_image, look_at_header):
        with pytest.raises(BadImage, match="not an image, or of a kind that cannot be read"):
            open_it(photo)
    assert not is_meant_as_image(photo.rename(tmp_path / "no ending"))
    assert started == []


def image_openings(tree: ast.AST) -> list[int]:
    """Lines on which an image is opened by Pillow or another library."""
    modules, functions = {"PIL.Image"}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "PIL":
            modules |= {name.asname or name.name for name in node.names if name.name == "Image"}
        if isinstance(node, ast.ImportFrom) and node.module == "PIL.Image":
            functions |= {name.asname or name.name for name in node.names if name.name == "open"}
        if isinstance(node, ast.Import):
            modules |= {name.asname for name in node.names if name.name == "PIL.Image" and name.asname}
    others = {"imread", "decode_image", "read_image", "Parser", "pil_loader"}
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            opens = node.attr == "open" and ast.unparse(node.value) in modules
            if opens or node.attr in others:
                lines.append(node.lineno)
        if isinstance(node, ast.Name) and node.id in functions | others:
            lines.append(node.lineno)
    return lines


def test_images_are_opened_in_one_place() -> None:
    found = {}
    root = Path(newkinds.__file__).parent
    for file in root.rglob("*.py"):
        if lines := image_openings(ast.parse(file.read_text(encoding="utf-8"))):
            found[file.relative_to(root).as_posix()] = len(lines)
    assert found == {"data/images.py": 1}


def test_every_promised_ending_has_a_format() -> None:
    Image.init()
    promised = {Image.registered_extensions().get(ending, "HEIF") for ending in ENDINGS}
    assert promised - {"MPO"} <= set(images.FORMATS)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_or_a_device_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    (tmp_path / "folder.jpg").mkdir()
    for name in ("pipe.jpg", "zero.jpg", "folder.jpg"):
        for open_it in (open_image, look_at_header):
            with pytest.raises(BadImage, match="not a file"):
                open_it(tmp_path / name)


# -- more than 8 bits ------------------------------------------------------------------------------------------------


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_16(values: np.ndarray) -> bytes:
    """A PNG file of 16 bits: (H, W) grey, (H, W, 2) with alpha, (H, W, 3) colours, (H, W, 4) with alpha."""
    height, width = values.shape[:2]
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[values.size // (width * height)]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return BEGINS + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def opened(path: Path, content: bytes) -> np.ndarray:
    path.write_bytes(content)
    return np.asarray(open_image(path)).astype(float)


def assert_shows(picture: np.ndarray, values: np.ndarray) -> None:
    """It has contrast, and is brighter where the numbers are larger."""
    assert picture.std() > 30
    assert 40 < picture.mean() < 215
    assert np.corrcoef(picture.ravel(), np.asarray(values, float).ravel())[0, 1] > 0.99


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
@pytest.mark.parametrize("ending", ["png", "tiff"])
def test_greys_of_few_bits_in_16_are_scaled(tmp_path: Path, bits: int, ending: str) -> None:
    values = (TEXTURE << bits >> 12).astype(np.uint16)
    file = io.BytesIO()
    Image.fromarray(values).save(file, ending)
    assert_shows(opened(tmp_path / "a", file.getvalue())[..., 0], values)


@pytest.mark.parametrize("bits", [10, 12, 14])
def test_colours_of_few_bits_in_16_are_scaled(tmp_path: Path, bits: int) -> None:
    colours = np.stack([TEXTURE, TEXTURE // 2, 4095 - TEXTURE], axis=-1) << bits >> 12
    assert_shows(opened(tmp_path / "a.png", png_16(colours)), colours)
    with_alpha = np.concatenate([colours, np.full((48, 64, 1), 65535)], axis=-1)
    assert_shows(opened(tmp_path / "b.png", png_16(with_alpha)), colours)


def test_photographs_of_16_bits_stay_as_they_are(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 65536, (48, 64, 3))
    np.testing.assert_array_equal(opened(tmp_path / "a.png", png_16(colours)), colours // 256)


@pytest.mark.parametrize("hot", [1, 5])
def test_hot_pixels_do_not_make_the_rest_black(tmp_path: Path, hot: int) -> None:
    values = TEXTURE.copy()
    values[0, :hot] = 65535
    grey = opened(tmp_path / "a.png", png_16(values))[..., 0]
    assert_shows(grey[1:], values[1:])
    colour = opened(tmp_path / "b.png", png_16(np.stack([values] * 3, axis=-1)))
    assert_shows(colour[1:, :, 0], values[1:])


@pytest.mark.parametrize("outlier", [1e30, -1e30, np.inf, np.nan, -9999.0])
def test_an_outlier_does_not_make_a_floating_image_black_or_white(tmp_path: Path, outlier: float) -> None:
    values = (TEXTURE / 4096).astype(np.float32)
    values[5, 5] = outlier
    file = io.BytesIO()
    Image.fromarray(values).save(file, "TIFF")
    picture = opened(tmp_path / "a.tif", file.getvalue())[..., 0]
    assert_shows(picture[6:], values[6:])


def test_the_area_of_a_map_without_data_is_black(tmp_path: Path) -> None:
    values = (TEXTURE / 4096).astype(np.float32)
    values[:20] = -9999
    file = io.BytesIO()
    Image.fromarray(values).save(file, "TIFF", tiffinfo={images.NO_DATA: "-9999"})
    picture = opened(tmp_path / "a.tif", file.getvalue())[..., 0]
    assert_shows(picture[20:], values[20:])
    assert picture[:20].max() == 0


def test_a_covered_lens_stays_dark(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(1000, 1006, (48, 64))
    assert opened(tmp_path / "a.png", png_16(noise)).std() < 15


def test_rare_bright_spots_are_the_picture_if_all_else_is_equal(tmp_path: Path) -> None:
    values = np.zeros((48, 64), int)
    values[10:12, 10:12] = 700
    picture = opened(tmp_path / "a.png", png_16(values))[..., 0]
    assert picture[10:12, 10:12].min() == 255
    assert picture.mean() < 1


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
@pytest.mark.parametrize("alpha", [0, 1])
def test_an_alpha_channel_that_hides_everything_is_ignored(tmp_path: Path, mode: str, alpha: int) -> None:
    image = Image.fromarray((TEXTURE // 16).astype(np.uint8))
    if mode == "P":
        image.convert("P").save(tmp_path / "a.png", transparency=bytes([alpha] * 256))
    else:
        with_alpha = image.convert(mode)
        with_alpha.putalpha(alpha)
        with_alpha.save(tmp_path / "a.png")
    assert_shows(np.asarray(open_image(tmp_path / "a.png"))[..., 0], TEXTURE)


# -- memory and time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG2000", "WEBP", "AVIF", "TIFF"])
def test_what_takes_too_much_memory_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip("not in this Pillow")
    file = tmp_path / "a.picture"
    with_strip = {"compression": "tiff_lzw", "strip_size": 1 << 30} if kind == "TIFF" else {}
    Image.new("RGB", (300, 300)).save(file, kind, **with_strip)
    open_image(file)
    with images.open_header(file) as image:
        needed = images._memory_needed(image, image.size)
    monkeypatch.setattr(images, "MOST_MEMORY", needed - 1)
    with pytest.raises(BadImage, match=r"too large \(300×300 pixels\): it takes about .* GB of memory"):
        open_image(file)


MEASURE = """
import resource, sys
from newkinds.data.images import open_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
picture = open_image(sys.argv[1])
print(*picture.size, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units elsewhere")
def test_a_large_picture_takes_hardly_more_memory_than_its_pixels(tmp_path: Path) -> None:
    side = 6000
    packer = zlib.compressobj(1)
    row = b"\0" + b"\x01\x02" * side
    packed = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 16, 0, 0, 0, 0)
    (tmp_path / "a.png").write_bytes(BEGINS + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b""))
    told = subprocess.run([sys.executable, "-c", MEASURE, tmp_path / "a.png"], capture_output=True, check=True)
    width, height, grown = map(int, told.stdout.split())
    assert min(width, height) >= images.ENOUGH
    assert grown < 6 * side * side  # two bytes are read of each pixel; all as float64 would take eight at least


def test_a_jpeg_of_too_many_scans_is_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("L", (4000, 4000), 90).save(file, "JPEG", progressive=True, quality=5)
    content = file.getvalue()
    (tmp_path / "usual.jpg").write_bytes(content)
    assert open_image(tmp_path / "usual.jpg").size == (4000, 4000)
    last = content[content.rindex(b"\xff\xda") : -2]
    (tmp_path / "slow.jpg").write_bytes(content[:-2] + 200 * last + content[-2:])
    with pytest.raises(BadImage, match=r"too slow to decode \(206 scans of 4000×4000 pixels\)"):
        open_image(tmp_path / "slow.jpg")


def test_jpeg_2000_of_very_small_parts_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (512, 512)).save(tmp_path / "a.jp2", precinct_size=(128, 128), tile_size=(256, 256))
    assert open_image(tmp_path / "a.jp2").size == (512, 512)
    content = bytearray((tmp_path / "a.jp2").read_bytes())
    style = content.index(b"\xff\x52")
    content[style + 6 : style + 8] = b"\xff\xff"  # layers
    (tmp_path / "layers.jp2").write_bytes(content)
    Image.new("RGB", (512, 512)).save(tmp_path / "tiles.jp2", tile_size=(4, 4))
    for name in ("layers", "tiles"):
        with pytest.raises(BadImage, match="JPEG 2000 parts are too many"):
            open_image(tmp_path / f"{name}.jp2")
