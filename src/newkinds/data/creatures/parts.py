"""The parts a creature is put together from, as outlines, and the canvas they are drawn on.

Coordinates are in body units: a creature looks along +x, y points down (as in images), and the body
is centred at the origin with a half-length of about one. Every outline is an array of points (k, 2).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image, ImageChops, ImageDraw

Points = np.ndarray  # (k, 2) float
Place = tuple[float, float]
Colour = tuple[int, int, int]

BACKGROUND, BODY, HEAD, WINGS, TAIL, LEGS, MARKINGS = range(7)

_TURN = np.linspace(0.0, 2 * np.pi, 37)[:-1]


# --------------------------------------------------------------------------------------- small geometry
def turned(points: Points, degrees: float) -> Points:
    """Rotate about the origin; positive turns from +x towards +y (clockwise on the screen)."""
    angle = np.deg2rad(degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]])


def ellipse(centre: Place, half_width: float, half_height: float, tilt: float = 0.0) -> Points:
    """An ellipse as 36 points."""
    around = np.stack([half_width * np.cos(_TURN), half_height * np.sin(_TURN)], axis=1)
    return turned(around, tilt) + centre


def ribbon(path: Points, start: float, end: float) -> Points:
    """The outline of a stroke along `path` whose half-width runs from `start` to `end`."""
    along = np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True) + 1e-9
    sideways = np.stack([-along[:, 1], along[:, 0]], axis=1)
    half_width = np.linspace(start, end, len(path))[:, None]
    return np.concatenate([path + sideways * half_width, (path - sideways * half_width)[::-1]])


def curve(start: Place, bend: Place, end: Place) -> Points:
    """A quadratic Bézier curve."""
    t = np.linspace(0, 1, 9)[:, None]
    return (1 - t) ** 2 * np.array(start) + 2 * t * (1 - t) * np.array(bend) + t**2 * np.array(end)


def fan(radii: np.ndarray, angles: np.ndarray) -> Points:
    """Points at `radii` and `angles` (degrees) around the origin, which is the first point."""
    rays = np.stack([radii * np.cos(np.deg2rad(angles)), radii * np.sin(np.deg2rad(angles))], axis=1)
    return np.concatenate([np.zeros((1, 2)), rays])


# ------------------------------------------------------------------------------------------------ bodies
@cache
def body_outline(shape: str) -> Points:
    """The body; x falls, then rises again over the 36 points, so that `back_at` can read it."""
    cos, sin = np.cos(_TURN), np.sin(_TURN)
    if shape == "round":
        return np.stack([0.86 * cos, 0.82 * sin], axis=1)
    if shape == "long":
        return np.stack([1.35 * cos, 0.46 * np.sign(sin) * np.abs(sin) ** 0.7], axis=1)
    if shape == "bean":
        return np.stack([1.12 * cos, 0.55 * sin + 0.34 * (cos**2 - 0.5)], axis=1)
    if shape == "pear":
        return np.stack([1.08 * cos, (0.58 - 0.3 * cos) * sin], axis=1)
    if shape == "waisted":
        return np.stack([1.2 * cos, (0.26 + 0.75 * cos**2) * sin], axis=1)
    raise ValueError(shape)


def back_at(outline: Points, x: float) -> float:
    """The height (y) of the back above x."""
    upper = outline[18:]  # from the rear (x = -1) over the back to the front
    return float(np.interp(x, upper[:, 0], upper[:, 1]))


def belly_at(outline: Points, x: float) -> float:
    """The height (y) of the belly below x."""
    lower = outline[18::-1]
    return float(np.interp(x, lower[:, 0], lower[:, 1]))


# ------------------------------------------------------------------- heads (around the head's own centre)
@cache
def head_outlines(shape: str) -> list[Points]:
    """Everything but the eye, from back to front."""
    skull = ellipse((0, 0), 0.42, 0.4)
    if shape == "round":
        return [skull]
    if shape == "beaked":
        return [np.array([[0.26, -0.25], [0.98, 0.06], [0.24, 0.24]]), skull]
    if shape == "horned":
        left = curve((-0.2, -0.22), (-0.42, -0.6), (-0.1, -0.92))
        right = curve((0.16, -0.25), (0.1, -0.7), (0.46, -0.88))
        return [ribbon(left, 0.13, 0.01), ribbon(right, 0.13, 0.01), skull]
    if shape == "eared":
        return [ellipse((-0.34, -0.48), 0.2, 0.42, -24), ellipse((0.16, -0.56), 0.2, 0.42, 12), skull]
    if shape == "snouted":
        return [skull, ellipse((0.5, 0.1), 0.4, 0.2, 8)]
    raise ValueError(shape)


# ------------------------------------------------------------- wings (root at the origin, pointing upwards)
@cache
def wing_outlines(shape: str) -> list[Points]:
    """One wing."""
    if shape == "none":
        return []
    if shape == "feathered":  # rounded feathers along the trailing edge
        angles = np.linspace(-78, -172, 17)
        radii = np.linspace(1.5, 0.72, 17) * np.tile([0.82, 0.98, 1.05, 0.98], 5)[:17]
        return [fan(radii, angles)]
    if shape == "bat":  # a skin hollowed between pointed fingers
        angles = np.linspace(-62, -178, 10)
        radii = np.array([1.6, 1.08, 1.02, 1.42, 0.92, 0.88, 1.25, 0.72, 0.68, 0.9])
        return [fan(radii, angles)]
    if shape == "insect":  # two narrow blades
        return [ellipse((-0.62, -0.5), 0.7, 0.22, 38), ellipse((-0.2, -0.82), 0.8, 0.25, 74)]
    raise ValueError(shape)


# --------------------------------------------------- tails (root at the origin, pointing backwards along -x)
@cache
def tail_outlines(shape: str) -> list[Points]:
    """The tail before it is turned up or down."""
    if shape == "none":
        return []
    if shape == "thin":
        path = curve((0, 0), (-0.7, 0.16), (-1.3, -0.22))
        return [ribbon(path, 0.09, 0.05), ellipse((-1.3, -0.24), 0.16, 0.16)]
    if shape == "fan":
        angles = np.linspace(138, 222, 17)
        radii = 1.08 * np.tile([0.86, 1.0, 1.06, 1.0], 5)[:17]
        return [fan(radii, angles)]
    if shape == "curl":
        turn = np.linspace(0, 1.75 * np.pi, 22)
        radius = np.linspace(0.48, 0.2, 22)
        spiral = np.stack([-0.42 - radius * np.sin(turn), -0.5 + radius * np.cos(turn)], axis=1)
        return [ribbon(np.concatenate([[[0.1, 0.02]], spiral]), 0.14, 0.07)]
    if shape == "forked":
        prongs = [ribbon(np.array([[-0.45, 0], [-1.2, y]]), 0.13, 0.03) for y in (-0.5, 0.5)]
        return [*prongs, ribbon(np.array([[0.1, 0], [-0.45, 0]]), 0.13, 0.14)]
    if shape == "bushy":
        t = np.linspace(0, 1, 12)
        upper = np.stack([-1.2 * t, -0.36 * np.sin(np.pi * t**0.8)], axis=1)
        return [np.concatenate([upper, upper[::-1] * (1, -1)])]
    raise ValueError(shape)


def loose_part(rng: np.random.Generator) -> list[Points]:
    """A wing, tail or head on its own."""
    outlines, shape = LOOSE_PARTS[rng.integers(len(LOOSE_PARTS))]
    return outlines(shape)


LOOSE_PARTS: tuple[tuple[Callable[[str], list[Points]], str], ...] = (
    *((wing_outlines, shape) for shape in ("feathered", "bat", "insect")),
    *((tail_outlines, shape) for shape in ("fan", "curl", "forked", "bushy")),
    *((head_outlines, shape) for shape in ("beaked", "horned", "eared")),
)


# ------------------------------------------------------------------- markings (clipped to the body later)
def marking_outlines(shape: str, outline: Points, rng: np.random.Generator) -> list[Points]:
    """Shapes to colour within the body outline."""
    half = float(outline[:, 0].max())
    if shape == "none":
        return []
    if shape == "stripes":  # across the body
        lean = rng.uniform(-0.12, 0.12)
        centres = np.linspace(-0.66, 0.66, 4) * half + rng.uniform(-0.06, 0.06)
        corners = np.array([[-0.1 + lean, -1.5], [0.1 + lean, -1.5], [0.1 - lean, 1.5], [-0.1 - lean, 1.5]])
        return [corners + np.array([centre, 0]) for centre in centres]
    if shape == "bands":  # along the body, following its back and belly
        x = np.linspace(-half, half, 9)
        back = np.array([back_at(outline, at) for at in x])
        belly = np.array([belly_at(outline, at) for at in x])
        shift = rng.uniform(-0.05, 0.05)
        bands = []
        for low, high in ((0.2, 0.36), (0.58, 0.74)):
            upper = back + (low + shift) * (belly - back)
            lower = back + (high + shift) * (belly - back)
            bands.append(np.concatenate([np.stack([x, upper], 1), np.stack([x, lower], 1)[::-1]]))
        return bands
    if shape == "spots":
        places = np.array(
            [[-0.68, 0.05], [-0.36, -0.5], [-0.28, 0.42], [0.05, -0.05], [0.34, 0.5], [0.4, -0.48], [0.72, 0]]
        )
        height = np.array([(back_at(outline, x * half), belly_at(outline, x * half)) for x in places[:, 0]])
        y = height.mean(axis=1) + places[:, 1] * (height[:, 1] - height[:, 0]) / 2
        places = np.stack([places[:, 0] * half, y], axis=1) + rng.uniform(-0.05, 0.05, (7, 2))
        return [ellipse((x, y), *(rng.uniform(0.11, 0.15),) * 2) for x, y in places]
    if shape == "patch":  # one large saddle
        return [ellipse((rng.uniform(-0.2, 0.0) * half, back_at(outline, 0.0)), 0.6 * half, 0.55)]
    raise ValueError(shape)


# ------------------------------------------------------------------------------------------------- canvas
class Canvas:
    """An image and its part map, both drawn `SUPERSAMPLE` times too large and reduced at the end."""

    SUPERSAMPLE = 3

    def __init__(self, background: Image.Image, size: int) -> None:
        self.size = size
        self.image = background
        self.parts = Image.new("L", background.size, BACKGROUND)
        self._image_pen = ImageDraw.Draw(self.image)
        self._parts_pen = ImageDraw.Draw(self.parts)
        self.matrix = np.eye(2)  # body units to supersampled pixels
        self.offset = np.zeros(2)

    def place(self, degrees: float, pixels_per_unit: float, mirrored: bool, centre: Points) -> None:
        """Where the next shapes go; `pixels_per_unit` and `centre` in pixels of the final image."""
        mirror = np.array([-1.0 if mirrored else 1.0, 1.0])
        self.matrix = turned(np.eye(2) * mirror, degrees) * pixels_per_unit * self.SUPERSAMPLE
        self.offset = np.asarray(centre, dtype=float) * self.SUPERSAMPLE

    def polygon(self, points: Points, colour: Colour, part: int, edge: Colour | None = None) -> None:
        """Fill a shape, with a thin edge where given."""
        corners = self._pixels(points)
        self._image_pen.polygon(corners, fill=colour)
        self._parts_pen.polygon(corners, fill=part)
        if edge is not None:
            self._image_pen.line(corners + corners[:4], fill=edge, width=self.SUPERSAMPLE)

    def polygons_within(self, shapes: list[Points], frame: Points, colour: Colour, part: int) -> None:
        """Fill shapes, but only where they lie inside `frame`."""
        if not shapes:
            return
        inside, filled = Image.new("1", self.image.size), Image.new("1", self.image.size)
        ImageDraw.Draw(inside).polygon(self._pixels(frame), fill=1)
        pen = ImageDraw.Draw(filled)
        for points in shapes:
            pen.polygon(self._pixels(points), fill=1)
        mask = ImageChops.logical_and(inside, filled)
        self.image.paste(colour, mask=mask)
        self.parts.paste(part, mask=mask)

    def outline(self, points: Points, colour: Colour) -> None:
        """Draw only the edge of a shape."""
        corners = self._pixels(points)
        self._image_pen.line(corners + corners[:4], fill=colour, width=self.SUPERSAMPLE)

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """The image (size, size, 3) and the part map (size, size), both uint8."""
        image = np.asarray(self.image.reduce(self.SUPERSAMPLE))
        middle = self.SUPERSAMPLE // 2
        parts = np.asarray(self.parts)[middle :: self.SUPERSAMPLE, middle :: self.SUPERSAMPLE]
        return image, np.ascontiguousarray(parts)

    def _pixels(self, points: Points) -> list[float]:
        return (points @ self.matrix + self.offset).ravel().tolist()
