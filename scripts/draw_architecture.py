"""The three drawings of docs/architecture.md as SVG: the rooms, the way of an image, the way of a training step.

python scripts/draw_architecture.py
"""

from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "architecture"
WIDTH, LINE = 980, 17
COLOURS = {"plain": "#f4f3ee", "known": "#dfe5ee", "new": "#d7ece6", "store": "#fff"}
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1d2327;text-anchor:middle}.name{font-weight:650}"
    ".note{font-size:12px;fill:#4d565c}.left{text-anchor:start}rect{stroke:#8b949b;rx:8}path{stroke:#4d565c;fill:none}"
)
ARROW = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" style="fill:#4d565c;stroke:none"/></marker>'
)


class Box(NamedTuple):
    """A rectangle with a name and lines below it."""

    x: int
    y: int
    name: str
    lines: tuple[str, ...] = ()
    width: int = 172
    height: int = 74
    colour: str = "plain"

    def svg(self) -> str:
        dashed = ' stroke-dasharray="4 3"' if self.colour == "store" else ""
        size = f'x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"'
        middle = self.x + self.width // 2
        first = self.y + (self.height - LINE * len(self.lines)) // 2 + 5
        texts = [f'<text class="name" x="{middle}" y="{first}">{escape(self.name)}</text>']
        texts += [
            f'<text class="note" x="{middle}" y="{first + LINE * (number + 1)}">{escape(line)}</text>'
            for number, line in enumerate(self.lines)
        ]
        return f'<rect {size} fill="{COLOURS[self.colour]}"{dashed}/>' + "".join(texts)


def arrow(path: str) -> str:
    return f'<path d="{path}" marker-end="url(#tip)"/>'


def note(x: int, y: int, text: str) -> str:
    return f'<text class="note left" x="{x}" y="{y}">{escape(text)}</text>'


def drawing(title: str, height: int, *parts: str) -> str:
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    ground = f'<rect width="{WIDTH}" height="{height}" style="fill:#fff;stroke:none"/>'
    defined = f"<title>{escape(title)}</title><defs><style>{STYLE}</style>{ARROW}</defs>"
    return f"{frame}{defined}{ground}{''.join(parts)}</svg>\n"


def rooms() -> str:
    names = {
        "known": (
            ("data", "folders → Table", "→ views → Batch"), ("encoders", "backbone, tuning,", "organizer"),
            ("cluster", "k-means, EM, Ward,", "counting, metrics"), ("assigners", "features →", "categories"),
            ("methods", "one loss", "per file"),
        ),
        "plain": (
            ("runs", "directory, settings,", "protocol"), ("training", "the one loop,", "cache, optimizers"),
            ("checks", "faults in data", ""), ("discovery", "categories, edits,", "page, studio, export"),
            ("evaluation", "accuracy,", "diagnosis"),
        ),
        "new": (
            ("search", "what to try,", "judged on labels"), ("verbs", "discover, update,", "train, predict …"),
            ("experiments", "grids, tables,", "the demo"), ("contracts", "what parts", "promise"),
            ("cli", "newkinds VERB", ""),
        ),
    }  # fmt: skip
    parts = []
    for row, (colour, boxes) in enumerate(names.items()):
        y = 20 + 104 * row
        parts += [
            Box(20 + 192 * i, y, name, tuple(lines), colour=colour).svg() for i, (name, *lines) in enumerate(boxes)
        ]
        parts += [arrow(f"M{192 + 192 * i} {y + 37}h18") for i in range(len(boxes) - 1)]
        if row < 2:
            parts.append(arrow(f"M874 {y + 76}v14H106v12"))
    hall = Box(20, 336, "the hall: settings, registry, files, ownership, console, errors …", width=940, height=40)
    return drawing("The rooms", 396, *parts, hall.svg())


def image() -> str:
    top = [
        Box(20, 20, "file", ("photo, box, frame",)), Box(212, 20, "Table", ("path, label or none",), colour="known"),
        Box(404, 20, "backbone", ("class token, patches",), colour="known"),
        Box(596, 20, "organizer", ("none, adapter, cpf …",), colour="known"),
        Box(788, 20, "feature", ("one vector",), colour="known"),
    ]  # fmt: skip
    below = [
        Box(788, 170, "embedding", ("unit length,", "whitened or not"), colour="new"),
        Box(596, 170, "assigner", ("em, pim, prototypes …",), colour="new"),
        Box(404, 170, "category", ("confidence, unlike",), colour="new"),
        Box(212, 170, "Discovery", ("as found, and as", "people corrected it"), colour="new"),
        Box(20, 170, "you", ("page, studio,", "tables, exports")),
    ]  # fmt: skip
    cache = Box(404, 112, "token cache", width=172, height=34, colour="store")
    forward = [arrow(f"M{192 + 192 * i} 57h18") for i in range(4)]
    back = [arrow(f"M{786 - 192 * i} 207h-18") for i in range(4)]
    lines = [arrow("M874 96v72"), arrow("M490 96v14"), arrow("M106 246v12H298v-12")]
    told = note(60, 275, "edits.jsonl: names, moves, merges … (they become labels by newkinds refine)")
    return drawing(
        "The way of an image", 290, *(box.svg() for box in [*top, *below, cache]), *forward, *back, *lines, told
    )


def step() -> str:
    top = [
        Box(20, 60, "Batch", ("two views of B images,", "labels where known"), colour="known"),
        Box(212, 60, "frozen blocks", ("computed once,", "cached"), colour="store"),
        Box(404, 60, "last blocks, tuning", ("rate: backbone_lr_ratio",), colour="known"),
        Box(596, 60, "organizer", ("rate:", "organizer_lr_ratio"), colour="known"),
        Box(788, 60, "Method.loss", ("head, rate lr", "+ Organizer.loss"), colour="new"),
    ]  # fmt: skip
    forward = [arrow(f"M{192 + 192 * i} 97h18") for i in range(4)]
    back = [arrow("M874 136v36H490v-34"), arrow("M682 172v-34")]
    more = [
        Box(20, 200, "before training", ("Organizer.start,", "Method.begin")),
        Box(212, 200, "before each epoch", ("on_epoch_start: banks,", "hierarchies, communities")),
        Box(404, 200, "teacher", ("average of all that trains,", "if the method has one")),
        Box(596, 200, "checkpoint", ("weights and buffers,", "no random states")),
        Box(788, 200, "after the last epoch", ("Assigner.fit, calibrate,", "run directory"), colour="new"),
    ]  # fmt: skip
    words = [note(212, 42, "an image → tokens → one feature"), note(560, 165, "gradients")]
    return drawing("The way of a training step", 294, *(box.svg() for box in [*top, *more]), *forward, *back, *words)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in (("rooms", rooms), ("image", image), ("step", step)):
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
