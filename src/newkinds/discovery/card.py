"""README.md of a run directory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..runs.protocol import describe_protocol
from ..runs.run import Run
from ..text import visible
from .categories import Discovery


def run_card(run: Run, known: Sequence[str], discovery: Discovery | None) -> str:
    """What this model is and how to use it."""
    lines = [
        f"# {_cell(run.folder.resolve().name)}",
        "",
        "A model that sorts images into known and new categories, made by newkinds.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {_cell(name)} | {_cell(value)} |" for name, value in describe_protocol(run)),
        "",
    ]
    if discovery is not None:
        lines += [
            f"{len(discovery.members):,} images assigned, {len(discovery.skipped):,} skipped (`skipped.csv`); "
            f"{len(discovery.known)} known categories, {len(discovery.new)} new ones with members.",
            "",
        ]
    lines += [
        "Known classes: " + ", ".join(_cell(name) for name in known) + ".",
        "",
        "```",
        "newkinds predict THIS_FOLDER image.jpg more-images/",
        "```",
        "",
    ]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Names come from files: in Markdown they are text and nothing else, neither table nor link nor tag."""
    return re.sub(r"([\\`*_{}\[\]()<>#!|&~:])", r"\\\1", visible(" ".join(text.split())))
