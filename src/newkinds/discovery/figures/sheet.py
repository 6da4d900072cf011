"""What all figures share: PNG and SVG of one drawing, plain text whatever a category is called, colours for all.

Known categories are dark and round, new ones light and pointed: readable in greyscale and by the colour-blind."""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from ...text import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

INK, PALE, GRID = "#222222", "#d9d9d9", "#e5e5e5"
KNOWN, NEW = "#00487a", "#e69f00"  # dark and light
DPI = 160
LONGEST_NAME = 22  # letters
LABEL_OFFSETS = (9, -9, 16, -16)  # points above a point
PLAIN = "DejaVu Sans"  # bundled with matplotlib

P = ParamSpec("P")


@dataclass(frozen=True)
class Drawing:
    """One drawing in two formats."""

    png: bytes
    svg: bytes

    def files(self, name: str) -> dict[str, bytes]:
        """What to write: file name → content."""
        return {f"{name}.png": self.png, f"{name}.svg": self.svg}


def picture(draw: "Callable[P, Figure]") -> Callable[P, Drawing]:
    """Make a function that draws a matplotlib figure return it as files; the same arguments give the same bytes.

    Text is text: a category may be called $x_1$, and is not an equation.
    """

    @wraps(draw)
    def as_files(*args: P.args, **kwargs: P.kwargs) -> Drawing:
        import matplotlib  # slow to import, and only pictures need it

        plain: dict[Any, Any] = {
            "text.parse_math": False,
            "svg.hashsalt": "newkinds",
            "font.family": [PLAIN],
            "text.usetex": False,
        }
        with matplotlib.rc_context(plain):
            figure = draw(*args, **kwargs)
            png, svg = io.BytesIO(), io.BytesIO()
            figure.savefig(png, format="png", metadata={"Software": None})  # no version, no date
            figure.savefig(svg, format="svg", metadata={"Creator": None, "Date": None})
        return Drawing(png.getvalue(), svg.getvalue())

    return as_files


def new_figure(width: float, height: float, names: Iterable[str] = ()) -> "Figure":
    """An empty white figure, in inches; no pyplot, which has global state. `names`: what installed fonts must draw."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams["font.family"] = _fonts_for(frozenset("".join(names)))[0]  # until the drawing is done
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def shown_names(names: Sequence[str], longest: int = LONGEST_NAME) -> list[str]:
    """Names as they fit into a figure: control characters visible, long ones cut in the middle (so that numbers at the
    end still tell them apart), and [3] for the name in place 3 if no installed font can draw it.

    >>> shown_names(["Black_footed_Albatross_of_the_north_01", "crow"])
    ['Black_foote…e_north_01', 'crow']
    """
    undrawable = _fonts_for(frozenset("".join(names)))[1]
    shown = []
    for place, name in enumerate(names):
        name = " ".join(escaped(name).split())
        if undrawable & set(name):
            name = f"[{place}]"
        if len(name) > longest:
            half = longest // 2
            name = f"{name[:half]}…{name[len(name) - (longest - half - 1) :]}"
        shown.append(name)
    return shown


@cache
def _fonts_for(letters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """The bundled font and those of the installed ones that draw letters which it lacks; and the letters none draws."""
    from matplotlib import font_manager

    fonts, missing = [PLAIN], letters - _letters_of(font_manager.findfont(PLAIN))
    for entry in font_manager.fontManager.ttflist:
        if not missing:
            break
        draws = _letters_of(entry.fname) if entry.style == "normal" and "Last Resort" not in entry.name else frozenset()
        if missing & draws:
            fonts.append(entry.name)
            missing -= draws
    return fonts, missing


@cache
def _letters_of(font_file: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(font_file).get_charmap()))
    except (OSError, RuntimeError):  # a font that cannot be opened draws nothing
        return frozenset()


def place_apart(labels: "Sequence[Annotation]", room: "Axes") -> int:
    """Move each label a little above or below its point, where no earlier one is; without room it is removed.

    Returns how many are left.
    """
    renderer = room.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    inside = room.get_window_extent(renderer)
    taken: list[Any] = []
    for label in labels:
        for points in LABEL_OFFSETS:
            label.xyann = (0, points)
            box = label.get_window_extent(renderer).padded(1)
            free = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
            if free and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
        else:
            label.remove()
    return len(taken)
