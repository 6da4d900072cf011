"""Image files as people have them, good and bad."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from conftest import save_image
from newkinds.data import images
from newkinds.data.images import BadImage, open_image


def test_opens_plain_rgb(tmp_path: Path) -> None:
    image = open_image(save_image(tmp_path / "a.png", size=(40, 30)))
    assert image.mode == "RGB"
    assert image.size == (40, 30)


def test_cmyk_becomes_rgb_with_the_right_colours(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=95)
    red, green, blue = np.asarray(open_image(tmp_path / "a.jpg")).reshape(-1, 3).mean(0)
    assert red > 200
    assert max(green, blue) < 80


def test_16_bit_grey_is_scaled_not_clipped(tmp_path: Path) -> None:
    values = np.linspace(0, 65535, 64, dtype=np.uint16).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "a.png")
    opened = np.asarray(open_image(tmp_path / "a.png"))[..., 0]
    np.testing.assert_allclose(opened, values / 257, atol=1)


def test_float_images_are_scaled_to_their_range(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "a.tiff")
    opened = np.asarray(open_image(tmp_path / "a.tiff"))
    assert opened.min() == 0
    assert opened.max() == 255


def test_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert open_image(tmp_path / "a.gif").getpixel((5, 5)) == (254, 0, 0) or (
        open_image(tmp_path / "a.gif").getpixel((5, 5)) == (255, 0, 0)
    )


def test_transparent_pixels_become_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.putpixel((7, 7), (10, 20, 30, 255))
    image.save(tmp_path / "a.png")
    opened = open_image(tmp_path / "a.png")
    assert opened.getpixel((0, 0)) == (255, 255, 255)
    assert opened.getpixel((7, 7)) == (10, 20, 30)


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (20, 10))
    exif = image.getexif()
    exif[0x0112] = 6  # rotate by 90°
    image.save(tmp_path / "a.jpg", exif=exif)
    assert open_image(tmp_path / "a.jpg").size == (10, 20)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("zero.jpg", b"", "empty"),
        ("text.jpg", b"this is no image", "not an image"),
        ("half.png", None, "damaged"),
        ("half.jpg", None, "damaged"),
    ],
)
def test_broken_files_say_why(tmp_path: Path, name: str, content: bytes | None, reason: str) -> None:
    path = tmp_path / name
    if content is None:
        save_image(path, size=(64, 64))
        content = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(content)
    with pytest.raises(BadImage, match=reason):
        open_image(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="not found"):
        open_image(tmp_path / "nothing.png")


@pytest.mark.parametrize(("size", "reason"), [((1, 1), "too small"), ((4, 400), "elongated")])
def test_shapes_that_carry_nothing(tmp_path: Path, size: tuple[int, int], reason: str) -> None:
    Image.new("RGB", size).save(tmp_path / "a.png")
    with pytest.raises(BadImage, match=reason):
        open_image(tmp_path / "a.png")


def test_huge_images_are_refused_before_they_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_PIXELS", 1000)
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    with pytest.raises(BadImage, match="too large"):
        open_image(tmp_path / "a.png")


def test_a_large_jpeg_is_decoded_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "ENOUGH", 100)
    Image.new("RGB", (900, 600), "red").save(tmp_path / "a.jpg")
    opened = open_image(tmp_path / "a.jpg")
    assert opened.size == (225, 150)
    assert opened.getpixel((10, 10))[0] > 250  # type: ignore[index]


def test_decompression_bomb(tmp_path: Path) -> None:
    Image.new("1", (14000, 14000)).save(tmp_path / "bomb.png")  # 196 megapixels in a few kilobytes
    with pytest.raises(BadImage, match="smaller"):
        open_image(tmp_path / "bomb.png")


@pytest.fixture
def heic_unknown() -> Iterator[None]:
    """Nobody has looked for the extra yet, nor will have."""
    images.can_read_heic.cache_clear()
    yield
    images.can_read_heic.cache_clear()


@pytest.mark.usefixtures("heic_unknown")
def test_without_the_extra_the_reason_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # cannot be imported
    (tmp_path / "a.HEIC").write_bytes(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic")
    with pytest.raises(BadImage, match=r"HEIC needs an extra: pip install 'newkinds\[heic\]'"):
        open_image(tmp_path / "a.HEIC")
    save_image(tmp_path / "a.jpg").rename(tmp_path / "jpeg.heic")  # as some programs name them
    assert open_image(tmp_path / "jpeg.heic").size == (40, 30)
    (tmp_path / "empty.heif").write_bytes(b"")
    with pytest.raises(BadImage, match="empty"):
        open_image(tmp_path / "empty.heif")


@pytest.mark.usefixtures("heic_unknown")
def test_the_extra_is_loaded_once_and_only_if_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []
    extra = SimpleNamespace(register_heif_opener=lambda: registered.append("now"))
    monkeypatch.setitem(sys.modules, "pillow_heif", extra)
    open_image(save_image(tmp_path / "a.png"))
    assert registered == []
    for name in ("a.heic", "b.heif"):
        (tmp_path / name).write_bytes(b"broken")
        with pytest.raises(BadImage, match="not an image"):
            open_image(tmp_path / name)
    assert registered == ["now"]
