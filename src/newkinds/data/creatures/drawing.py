"""Creatures: a data set drawn by code. A category (`Kind`) is a composition of shared parts; everything else is free in
each image: pose, size, place, every colour, background, clutter and what hides a piece of it. No single part names a
category, and colour says nothing about it."""

import colorsys
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from typing import Literal

import numpy as np
from PIL import Image

from . import anatomy as shapes
from .anatomy import BACKGROUND, BODY, HEAD, LEG, MARKING, TAIL, WING, Canvas, Colour

PARTS = ("background", "body", "head", "wings", "tail", "legs", "markings")

Pool = Literal["evaluated", "pretraining"]

FACTORS: dict[str, tuple[str, ...]] = {
    "body": tuple(shapes.BODIES),
    "head": tuple(shapes.HEADS),
    "wings": tuple(shapes.WINGS),
    "tail": tuple(shapes.TAILS),
    "legs": ("0", "2", "4", "6"),
    "markings": shapes.MARKINGS,
    "head_at": ("front", "raised"),
    "wings_at": ("raised", "spread"),
    "tail_at": ("up", "down"),
}
"""What a kind is made of: the six parts, then the arrangement."""

KINSHIP: dict[Pool, int] = {"evaluated": 3, "pretraining": 2}
"""In how many factors the closest kinds of a pool differ: two are often a matter of a few pixels at this size."""


@dataclass(frozen=True)
class Kind:
    """A category: one choice per factor (see `FACTORS`)."""

    body: str
    head: str
    wings: str
    tail: str
    legs: str
    markings: str
    head_at: str
    wings_at: str
    tail_at: str

    @property
    def choices(self) -> tuple[int, ...]:
        """The composition as one index per factor."""
        return tuple(FACTORS[field.name].index(getattr(self, field.name)) for field in fields(self))

    @property
    def name(self) -> str:
        """A pronounceable name; different compositions have different names."""
        body, head, wings, tail, legs, markings, head_at, wings_at, tail_at = self.choices
        return (
            "brmpz"[body] + "aeiou"[head] + "lkvs"[wings] + "aeio"[legs] + "ndtgfx"[tail] + "aeiou"[markings]
            + ("r", "n")[head_at] + ("a", "i")[wings_at] + ("", "s")[tail_at]
        )  # fmt: skip

    @property
    def pool(self) -> Pool:
        """Which of the two disjoint halves of all compositions this one belongs to."""
        return "evaluated" if sum(self.choices) % 2 == 0 else "pretraining"


def differences(a: Kind, b: Kind) -> int:
    """In how many factors two kinds differ."""
    return sum(x != y for x, y in zip(astuple(a), astuple(b), strict=True))


def kinds(count: int, seed: int, pool: Pool) -> list[Kind]:
    """`count` different kinds of one pool, in an order that says nothing.

    They grow as families: a quarter are founders, every other kind is a relative of an earlier one with a few
    factors changed (`KINSHIP`), so that telling neighbours apart takes more than a glance at one part.
    """
    rng = _stream(seed, ("evaluated", "pretraining").index(pool), 0)
    fewest = KINSHIP[pool]
    found: list[Kind] = []
    while len(found) < count:
        if len(found) < 1 + count // 4:
            choices = {factor: rng.choice(options) for factor, options in FACTORS.items()}
        else:
            parent = found[rng.integers(len(found))]
            choices = {factor: getattr(parent, factor) for factor in FACTORS}
            for factor in rng.choice(list(FACTORS), size=rng.integers(fewest, fewest + 2), replace=False):
                choices[factor] = rng.choice([other for other in FACTORS[factor] if other != choices[factor]])
        candidate = _canonical({factor: str(choice) for factor, choice in choices.items()})
        if candidate.pool == pool and all(differences(candidate, other) >= fewest for other in found):
            found.append(candidate)
    return [found[i] for i in rng.permutation(count)]


def _canonical(choices: dict[str, str]) -> Kind:
    """What is absent has no place: the first option stands for it, so that no two kinds look alike."""
    for part in ("wings", "tail"):
        if choices[part] == "none":
            choices[f"{part}_at"] = FACTORS[f"{part}_at"][0]
    return Kind(**choices)


@dataclass(frozen=True)
class Creatures:
    """Images (n, s, s, 3) and part maps (n, s, s), uint8, with the category (n,) of each image."""

    images: np.ndarray
    parts: np.ndarray
    categories: np.ndarray
    kinds: list[Kind]


@lru_cache(maxsize=2)  # a grid of runs looks at the same images again and again, and drawing 2,400 takes ten seconds
def make(
    categories: int = 20, per_category: int = 40, seed: int = 0, size: int = 73, pool: Pool = "evaluated"
) -> Creatures:
    """Draw the data set; the same arguments give the same bytes, whatever was drawn before. They cannot be changed."""
    members = kinds(categories, seed, pool)
    drawn = [
        draw_creature(kind, _stream(seed, category + 1, index), size)
        for category, kind in enumerate(members)
        for index in range(per_category)
    ]
    images, parts = map(np.stack, zip(*drawn, strict=True))
    for shared in (images, parts):
        shared.flags.writeable = False
    return Creatures(images, parts, np.repeat(np.arange(categories), per_category), members)


def patch_parts(parts: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """The part that covers most of each patch: (n, s, s) part maps to (n, rows, cols); a tie goes to the lower."""
    count, height, width = parts.shape
    rows, cols = grid
    patch_of = (np.arange(height) * rows // height)[:, None] * cols + np.arange(width) * cols // width  # (s, s)
    cell = (np.arange(count)[:, None, None] * rows * cols + patch_of) * len(PARTS) + parts  # (n, s, s)
    votes = np.bincount(cell.ravel(), minlength=count * rows * cols * len(PARTS))
    return votes.reshape(count, rows, cols, len(PARTS)).argmax(axis=-1).astype(np.uint8)


def draw_creature(kind: Kind, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """One image (size, size, 3) of a kind and its part map (size, size), both uint8."""
    palette = _Palette(rng)
    canvas = Canvas(_background(rng, palette, size), size)
    _clutter(canvas, rng, palette)
    centre = size * (0.5 + rng.uniform(-0.07, 0.07, 2))
    scale = size * rng.uniform(0.19, 0.25)
    canvas.place(rng.normal(0, 10), scale, bool(rng.random() < 0.5), centre)
    _creature(canvas, kind, rng, palette)
    if rng.random() < 0.4:
        _occluder(canvas, rng, palette, centre, scale)
    return canvas.finish()


class _Palette:
    """The free colours of one image: lively parts in a calmer scene, lighter or darker than they are."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        dark_scene = rng.random() < 0.5
        self.scene_value = (0.16, 0.5) if dark_scene else (0.72, 1.0)
        self.scene_hue = rng.random()
        bright = (0.72, 1.0) if dark_scene else (0.35, 0.85)
        hue = rng.random()
        self.body = self._colour(hue, (0.35, 0.95), bright)
        self.head, self.wings, self.tail, self.legs = (
            self._colour(hue + rng.normal(0, 0.16), (0.35, 0.95), bright) for _ in range(4)
        )
        contrast = (0.12, 0.4) if sum(self.body) > 380 else (0.9, 1.0)
        self.markings = self._colour(rng.random(), (0.2, 0.9) if contrast[0] < 0.5 else (0.05, 0.4), contrast)
        self.edge = self._colour(hue, (0.4, 0.8), (0.08, 0.2))
        self.stretch = rng.uniform(0.88, 1.12)

    def scene(self) -> Colour:
        """A colour for background and clutter."""
        return self._colour(self.scene_hue + self._rng.normal(0, 0.12), (0.1, 0.5), self.scene_value)

    def lively(self) -> Colour:
        """A colour as lively as a creature's."""
        return self._colour(self._rng.random(), (0.3, 0.95), (0.35, 1.0))

    def _colour(self, hue: float, saturation: tuple[float, float], value: tuple[float, float]) -> Colour:
        red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, self._rng.uniform(*saturation), self._rng.uniform(*value))
        return round(255 * red), round(255 * green), round(255 * blue)


# ---------------------------------------------------------------------------------------------- the creature
def _creature(canvas: Canvas, kind: Kind, rng: np.random.Generator, palette: _Palette) -> None:
    """Draw the parts from back to front."""
    body = shapes.BODIES[kind.body] * rng.uniform(0.9, 1.1, 2)
    half = float(body[:, 0].max())
    edge = palette.edge

    _wings(canvas, kind, rng, palette, (-0.1 * half, shapes.back_at(body, -0.1 * half) + 0.15))
    lean = (1 if kind.tail_at == "up" else -1) * rng.normal(38, 9)
    root = (-0.9 * half, (shapes.back_at(body, -0.9 * half) + shapes.belly_at(body, -0.9 * half)) / 2)
    flip = (1, 1) if kind.tail_at == "up" else (1, -1)
    for outline in shapes.TAILS[kind.tail]:
        canvas.polygon(shapes.turn(outline * flip * palette.stretch, lean) + root, palette.tail, TAIL, edge)
    _legs(canvas, int(kind.legs), body, rng, palette)

    canvas.polygon(body, palette.body, BODY)
    canvas.polygons_within(shapes.marking_outlines(kind.markings, body, rng), body, palette.markings, MARKING)
    canvas.outline(body, edge)
    _head(canvas, kind, body, rng, palette)


def _wings(canvas: Canvas, kind: Kind, rng: np.random.Generator, palette: _Palette, root: tuple[float, float]) -> None:
    """Raised: both wings above the back. Spread: one above, one below, as seen from the top."""
    flap = rng.normal(8, 10)
    spread = kind.wings_at == "spread"
    far = (0.9, -0.95) if spread else (0.82, 0.82)
    far_root = (root[0], -root[1]) if spread else (root[0] + 0.3, root[1])
    for mirror, turn, at in ((far, -flap if spread else flap + 28, far_root), ((1.0, 1.0), flap, root)):
        for outline in shapes.WINGS[kind.wings]:
            canvas.polygon(shapes.turn(outline * mirror, turn) + at, palette.wings, WING, palette.edge)


def _legs(canvas: Canvas, count: int, body: np.ndarray, rng: np.random.Generator, palette: _Palette) -> None:
    """Legs evenly along the belly, each swung on its own, with a foot to the front."""
    half = float(body[:, 0].max())
    reach = {0: 0.0, 2: 0.28, 4: 0.62, 6: 0.76}[count]
    length = rng.uniform(0.62, 0.8)
    for x in np.linspace(-reach, reach, count) * half:
        hip = np.array([x, shapes.belly_at(body, x) - 0.14])
        knee = hip + shapes.turn(np.array([0.0, length * 0.6]), rng.normal(0, 13))
        sole = knee + shapes.turn(np.array([0.0, length * 0.55]), rng.normal(0, 11))
        path = np.stack([hip, knee, sole, sole + np.array([0.22, 0.02])])
        canvas.polygon(shapes.ribbon(path, 0.12, 0.07), palette.legs, LEG, palette.edge)


def _head(canvas: Canvas, kind: Kind, body: np.ndarray, rng: np.random.Generator, palette: _Palette) -> None:
    """At the front, or raised on a neck above the shoulder."""
    half = float(body[:, 0].max())
    if kind.head_at == "raised":
        shoulder = np.array([0.7 * half, shapes.back_at(body, 0.7 * half) + 0.18])
        centre = shoulder + shapes.turn(np.array([0.0, -0.92]), rng.normal(22, 7))
        neck = shapes.ribbon(np.stack([shoulder, centre]), 0.24, 0.18)
        canvas.polygon(neck, palette.head, HEAD, palette.edge)
    else:
        middle = (shapes.back_at(body, 0.9 * half) + shapes.belly_at(body, 0.9 * half)) / 2
        centre = np.array([half + 0.18, middle - 0.1 + rng.normal(0, 0.05)])
    tilt = rng.normal(0, 11)
    for outline in shapes.HEADS[kind.head]:
        canvas.polygon(shapes.turn(outline, tilt) + centre, palette.head, HEAD, palette.edge)
    eye = shapes.turn(np.array([[0.12, -0.1]]), tilt)[0] + centre
    canvas.polygon(shapes.ellipse(tuple(eye), 0.14, 0.14), (250, 250, 245), HEAD)
    canvas.polygon(shapes.ellipse((eye[0] + 0.04, eye[1]), 0.075, 0.075), (20, 18, 24), HEAD)


# ------------------------------------------------------------------------------------------------ the scene
def _background(rng: np.random.Generator, palette: _Palette, size: int) -> Image.Image:
    """A gradient, clouds, stripes or grain in two or three scene colours, as large as the canvas."""
    full = (size * Canvas.SUPERSAMPLE,) * 2
    style = rng.choice(("gradient", "clouds", "stripes", "grain"))
    if style == "stripes":
        image = Image.new("RGB", full, palette.scene())
        canvas = Canvas(image, size)
        canvas.place(rng.uniform(0, 180), size, False, np.array([size / 2, size / 2]))
        colour, width = palette.scene(), rng.uniform(0.05, 0.12)
        stripe = np.array([[-0.8, 0], [0.8, 0], [0.8, width], [-0.8, width]])
        for y in np.arange(-0.8, 0.8, 2.2 * width):
            canvas.polygon(stripe + np.array([0, y]), colour, BACKGROUND)
        return image
    cells = {"gradient": 2, "clouds": int(rng.integers(4, 8)), "grain": size // 2}[str(style)]
    colours = np.array([palette.scene(), palette.scene(), palette.scene()], dtype=float)
    weights = rng.random((cells, cells, 3))
    if style == "grain":
        half = cells // 2 + 1
        weights = 0.75 * weights[:2, :2].repeat(half, 0).repeat(half, 1)[:cells, :cells] + 0.25 * weights
    weights /= weights.sum(axis=-1, keepdims=True)
    small = Image.fromarray((weights @ colours).astype(np.uint8))
    return small.resize(full, Image.Resampling.BICUBIC if style != "grain" else Image.Resampling.BILINEAR)


def _clutter(canvas: Canvas, rng: np.random.Generator, palette: _Palette) -> None:
    """Plain shapes in scene colours and, now and then, a loose part that belongs to nobody."""
    for _ in range(rng.integers(2, 7)):
        _place_anywhere(canvas, rng, rng.uniform(0.04, 0.14))
        corners = int(rng.choice((3, 4, 5, 36)))
        angles = np.linspace(0, 360, corners, endpoint=False)
        outline = shapes.fan(np.ones(corners), angles)[1:] * (1, rng.uniform(0.4, 1))
        canvas.polygon(outline, palette.scene(), BACKGROUND)
    for _ in range(rng.integers(0, 3)):
        _place_anywhere(canvas, rng, rng.uniform(0.1, 0.18))
        colour = palette.lively()
        for outline in shapes.LOOSE_PARTS[rng.integers(len(shapes.LOOSE_PARTS))]:
            canvas.polygon(outline, colour, BACKGROUND, palette.edge)


def _place_anywhere(canvas: Canvas, rng: np.random.Generator, relative_scale: float) -> None:
    degrees, mirrored = rng.uniform(0, 360), bool(rng.random() < 0.5)
    canvas.place(degrees, canvas.size * relative_scale, mirrored, rng.uniform(0, canvas.size, 2))


def _occluder(canvas: Canvas, rng: np.random.Generator, palette: _Palette, centre: np.ndarray, scale: float) -> None:
    """A bush or stone in front of some edge of the creature; what it hides is background."""
    direction = shapes.turn(np.array([[1.0, 0.0]]), rng.uniform(0, 360))[0]
    edge_of_it = centre + direction * scale * 1.35
    canvas.place(rng.uniform(0, 360), scale * rng.uniform(0.5, 0.85), False, edge_of_it)
    lobes = 1 + 0.13 * np.sin(np.arange(36) * rng.integers(3, 8) * 2 * np.pi / 36)
    outline = shapes.ellipse((0, 0), 1, 0.75) * lobes[:, None]
    canvas.polygon(outline, palette.scene(), BACKGROUND, palette.edge)


def _stream(*key: int) -> np.random.Generator:
    """An independent stream of random numbers for a key, the same on every machine."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
