"""README.md of a run directory."""

import re
from collections.abc import Sequence

from ..runs.protocol import describe_protocol
from ..runs.run import Run
from ..text import visible
from .categories import Discovery


def run_card(run: Run, known: Sequence[str], discovery: Discovery | None) -> str:
    """What this model is and how to use it."""
    protocol = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in describe_protocol(run))
    found = ""
    if discovery is not None:
        found = (
            f"{len(discovery.members):,} images assigned, {len(discovery.skipped):,} skipped (`skipped.csv`); "
            f"{len(discovery.known)} known categories, {len(discovery.new)} new ones with members.\n\n"
        )
    return f"""\
# {_cell(run.folder.resolve().name)}

A model that sorts images into known and new categories, made by newkinds.

| | |
|---|---|
{protocol}

{found}Known classes: {", ".join(map(_cell, known))}.

```
newkinds predict THIS_FOLDER image.jpg more-images/
```
"""


def _cell(text: str) -> str:
    """Names come from files: in Markdown they are text and nothing else, neither table nor link nor tag."""
    return re.sub(r"([\\`*_{}\[\]()<>#!|&~:])", r"\\\1", visible(" ".join(text.split())))
