"""The parts a creature is put together from, as outlines (k, 2), and the canvas they are drawn on. Coordinates are in
body units: a creature looks along +x, y points down (as in images), and the body is centred at the origin with a
half-length of about one."""

import numpy as np
from PIL import Image, ImageChops, ImageDraw

Points = np.ndarray  # (k, 2) float
Place = tuple[float, float]
Colour = tuple[int, int, int]

BACKGROUND, BODY, HEAD, WING, TAIL, LEG, MARKING = range(7)  # in part maps

_TURN = np.linspace(0.0, 2 * np.pi, 37)[:-1]
_COS, _SIN = np.cos(_TURN), np.sin(_TURN)


# --------------------------------------------------------------------------------------- small geometry
def turn(points: Points, degrees: float) -> Points:
    """Rotate about the origin; positive turns from +x towards +y (clockwise on the screen)."""
    angle = np.deg2rad(degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]])


def ellipse(centre: Place, half_width: float, half_height: float, tilt: float = 0.0) -> Points:
    """An ellipse as 36 points."""
    around = np.stack([half_width * _COS, half_height * _SIN], axis=1)
    return turn(around, tilt) + centre


def ribbon(path: Points, start: float, end: float) -> Points:
    """The outline of a stroke along `path` whose half-width runs from `start` to `end`."""
    along = np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True) + 1e-9
    sideways = np.stack([-along[:, 1], along[:, 0]], axis=1)
    half_width = np.linspace(start, end, len(path))[:, None]
    return np.concatenate([path + sideways * half_width, (path - sideways * half_width)[::-1]])


def bezier(start: Place, bend: Place, end: Place) -> Points:
    """A quadratic Bézier curve."""
    t = np.linspace(0, 1, 9)[:, None]
    return (1 - t) ** 2 * np.array(start) + 2 * t * (1 - t) * np.array(bend) + t**2 * np.array(end)


def fan(radii: np.ndarray, angles: np.ndarray) -> Points:
    """Points at `radii` and `angles` (degrees) around the origin, which is the first point."""
    rays = np.stack([radii * np.cos(np.deg2rad(angles)), radii * np.sin(np.deg2rad(angles))], axis=1)
    return np.concatenate([np.zeros((1, 2)), rays])


# ------------------------------------------------------------------------------------------------ bodies
# x falls, then rises again over the 36 points, so that `back_at` can read it
BODIES: dict[str, Points] = {
    "round": np.stack([0.86 * _COS, 0.82 * _SIN], axis=1),
    "long": np.stack([1.35 * _COS, 0.46 * np.sign(_SIN) * np.abs(_SIN) ** 0.7], axis=1),
    "bean": np.stack([1.12 * _COS, 0.55 * _SIN + 0.34 * (_COS**2 - 0.5)], axis=1),
    "pear": np.stack([1.08 * _COS, (0.58 - 0.3 * _COS) * _SIN], axis=1),
    "waisted": np.stack([1.2 * _COS, (0.26 + 0.75 * _COS**2) * _SIN], axis=1),
}


def back_at(outline: Points, x: float) -> float:
    """The height (y) of the back above x."""
    upper = outline[18:]  # from the rear (x = -1) over the back to the front
    return float(np.interp(x, upper[:, 0], upper[:, 1]))


def belly_at(outline: Points, x: float) -> float:
    """The height (y) of the belly below x."""
    lower = outline[18::-1]
    return float(np.interp(x, lower[:, 0], lower[:, 1]))


# ------------------------------------------- heads around their centre: all but the eye, from back to front
_SKULL = ellipse((0, 0), 0.42, 0.4)
_LEFT_HORN = ribbon(bezier((-0.2, -0.22), (-0.42, -0.6), (-0.1, -0.92)), 0.13, 0.01)
_RIGHT_HORN = ribbon(bezier((0.16, -0.25), (0.1, -0.7), (0.46, -0.88)), 0.13, 0.01)
HEADS: dict[str, list[Points]] = {
    "round": [_SKULL],
    "beaked": [np.array([[0.26, -0.25], [0.98, 0.06], [0.24, 0.24]]), _SKULL],
    "horned": [_LEFT_HORN, _RIGHT_HORN, _SKULL],
    "eared": [ellipse((-0.34, -0.48), 0.2, 0.42, -24), ellipse((0.16, -0.56), 0.2, 0.42, 12), _SKULL],
    "snouted": [_SKULL, ellipse((0.5, 0.1), 0.4, 0.2, 8)],
}

# ------------------------------------------------ wings, one of the two: root at the origin, pointing upwards
_FEATHERS = np.linspace(1.5, 0.72, 17) * np.tile([0.82, 0.98, 1.05, 0.98], 5)[:17]  # rounded, at the trailing edge
_FINGERS = np.array([1.6, 1.08, 1.02, 1.42, 0.92, 0.88, 1.25, 0.72, 0.68, 0.9])  # pointed, a skin between them
WINGS: dict[str, list[Points]] = {
    "none": [],
    "feathered": [fan(_FEATHERS, np.linspace(-78, -172, 17))],
    "bat": [fan(_FINGERS, np.linspace(-62, -178, 10))],
    "insect": [ellipse((-0.62, -0.5), 0.7, 0.22, 38), ellipse((-0.2, -0.82), 0.8, 0.25, 74)],  # narrow blades
}

# ----------------- tails before they are turned up or down: root at the origin, pointing backwards along -x
_THIN = ribbon(bezier((0, 0), (-0.7, 0.16), (-1.3, -0.22)), 0.09, 0.05)
_RIPPLE = 1.08 * np.tile([0.86, 1.0, 1.06, 1.0], 5)[:17]
_AROUND, _RADIUS = np.linspace(0, 1.75 * np.pi, 22), np.linspace(0.48, 0.2, 22)
_SPIRAL = np.stack([-0.42 - _RADIUS * np.sin(_AROUND), -0.5 + _RADIUS * np.cos(_AROUND)], axis=1)
_PRONGS = [ribbon(np.array([[-0.45, 0], [-1.2, y]]), 0.13, 0.03) for y in (-0.5, 0.5)]
_ALONG = np.linspace(0, 1, 12)
_UPPER = np.stack([-1.2 * _ALONG, -0.36 * np.sin(np.pi * _ALONG**0.8)], axis=1)
TAILS: dict[str, list[Points]] = {
    "none": [],
    "thin": [_THIN, ellipse((-1.3, -0.24), 0.16, 0.16)],
    "fan": [fan(_RIPPLE, np.linspace(138, 222, 17))],
    "curl": [ribbon(np.concatenate([[[0.1, 0.02]], _SPIRAL]), 0.14, 0.07)],
    "forked": [*_PRONGS, ribbon(np.array([[0.1, 0], [-0.45, 0]]), 0.13, 0.14)],
    "bushy": [np.concatenate([_UPPER, _UPPER[::-1] * (1, -1)])],
}

LOOSE_PARTS: list[list[Points]] = [  # what may lie about on its own
    *(WINGS[shape] for shape in ("feathered", "bat", "insect")),
    *(TAILS[shape] for shape in ("fan", "curl", "forked", "bushy")),
    *(HEADS[shape] for shape in ("beaked", "horned", "eared")),
]


# ------------------------------------------------------------------- markings (clipped to the body later)
MARKINGS = ("none", "stripes", "bands", "spots", "patch")


def marking_outlines(shape: str, outline: Points, rng: np.random.Generator) -> list[Points]:
    """Shapes to colour within the body outline."""
    half = float(outline[:, 0].max())
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
    return []


# ------------------------------------------------------------------------------------------------- canvas
class Canvas:
    """An image and its part map, both drawn `SUPERSAMPLE` times too large and reduced at the end."""

    SUPERSAMPLE = 3

    def __init__(self, background: Image.Image, size: int) -> None:
        self.size = size
        self.image = background
        self.parts = Image.new("L", background.size, BACKGROUND)
        self._pen = ImageDraw.Draw(self.image)
        self._parts_pen = ImageDraw.Draw(self.parts)
        self.matrix = np.eye(2)  # body units to supersampled pixels
        self.offset = np.zeros(2)

    def place(self, degrees: float, pixels_per_unit: float, mirrored: bool, centre: Points) -> None:
        """Where the next shapes go; `pixels_per_unit` and `centre` in pixels of the final image."""
        mirror = np.array([-1.0 if mirrored else 1.0, 1.0])
        self.matrix = turn(np.eye(2) * mirror, degrees) * pixels_per_unit * self.SUPERSAMPLE
        self.offset = np.asarray(centre, dtype=float) * self.SUPERSAMPLE

    def polygon(self, points: Points, colour: Colour, part: int, edge: Colour | None = None) -> None:
        """Fill a shape, with a thin edge if one is given."""
        self._pen.polygon(self._pixels(points), fill=colour)
        self._parts_pen.polygon(self._pixels(points), fill=part)
        if edge is not None:
            self.outline(points, edge)

    def polygons_within(self, shapes: list[Points], frame: Points, colour: Colour, part: int) -> None:
        """Fill shapes, but only where they lie inside `frame`."""
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
        self._pen.line(corners + corners[:4], fill=colour, width=self.SUPERSAMPLE)

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """The image (size, size, 3) and the part map (size, size), both uint8."""
        every = slice(self.SUPERSAMPLE // 2, None, self.SUPERSAMPLE)
        return np.asarray(self.image.reduce(self.SUPERSAMPLE)), np.asarray(self.parts)[every, every].copy()

    def _pixels(self, points: Points) -> list[float]:
        return (points @ self.matrix + self.offset).ravel().tolist()
