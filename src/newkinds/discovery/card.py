"""README.md of a run directory, and of its model where that is exported: data, counts, protocol, limits."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..runs.directory import RunDirectory
from ..runs.records import Reliability
from ..text import percent, plural, text_table, visible
from .categories import Discovery
from .described import Described
from .kinds import Category

PREDICT = "newkinds predict THIS_FOLDER image.jpg more-images/"
MOST_NAMED = 30  # categories of a sort that are listed one by one


def run_card(run: RunDirectory, described: Described, discovery: Discovery | None, usage: str = PREDICT) -> str:
    """What this model is, what it was made from, how to use it, and what it cannot do. `usage`: the commands."""
    elsewhere = usage != PREDICT
    found = "" if discovery is None else _found(discovery, "" if elsewhere else " (`skipped.csv`)")
    limits = "\n".join(f"- {limit}" for limit in _limits(run, discovery))
    return f"""\
# {_cell(run.folder.resolve().name)}

A model that sorts images into known and new categories, made by newkinds.

```
{usage}
```

## Data and protocol

| | |
|---|---|
{_protocol(run, described, elsewhere)}

Known classes: {", ".join(map(_cell, described.known)) or "none, as no image has a label"}.

{found}## Limits

{limits}
"""


def _protocol(run: RunDirectory, described: Described, elsewhere: bool) -> str:
    """The rows of the table; a card that goes elsewhere does not tell where on this machine the images are."""
    rows, data = described.protocol, run.settings()["data"]
    root = data.get("root") or data.get("path")
    if elsewhere and root:
        rows = [(name, value.replace(str(root), Path(root).name)) for name, value in rows]
    return "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in rows)


def _found(discovery: Discovery, where: str) -> str:
    junk, pool = sum(member.status == "junk" for member in discovery.members), len(discovery.pool)
    counts = (
        f"{len(discovery.members):,} images assigned, {len(discovery.skipped):,} skipped{where}"
        f"{f', {junk:,} junk by hand' if junk else ''}{f', {pool:,} not placed yet' if pool else ''}; "
        f"{plural(len(discovery.known), 'known category')}, {len(discovery.new)} new ones with members."
    )
    known = sorted((category for category in discovery.known if category.size), key=lambda category: -category.size)
    return f"## What was found\n\n{counts}\n\n{_sizes('known category', known)}{_sizes('new category', discovery.new)}"


def _sizes(title: str, categories: Sequence[Category]) -> str:
    if not categories:
        return ""
    rows = [[_cell(c.name), f"{c.size:,}", f"{c.confidence:.2f}"] for c in categories[:MOST_NAMED]]
    left = categories[MOST_NAMED:]
    if left:
        rows.append([f"{len(left):,} more", f"{sum(category.size for category in left):,}", ""])
    return text_table([title, "images", "confidence"], rows) + "\n\n"


def _limits(run: RunDirectory, discovery: Discovery | None) -> Iterator[str]:
    """What the model cannot do, in sentences."""
    gets = "Every image gets one of these categories, whatever it shows."
    if discovery is not None and (waiting := len(discovery.pool)):
        some = "1 image of this run waits" if waiting == 1 else f"{waiting:,} images of this run wait"
        gets = f"{some} to be placed, like none of these categories; `predict` gives one to every image all the same."
    yield (
        f"{gets} `unlike` above 1: it is farther from its "
        "category than nearly all labelled images are from theirs. Images of something else altogether are "
        "mostly noticed so; of a kind that resembles these (another species of the same genus) most are not."
    )
    reliability = Reliability.find(run)
    if reliability is None:
        yield "Confidence is not calibrated: it is the share of a softmax, and says little about how often it is right."
    else:
        error = "" if reliability.error is None else f" It is off by {percent(reliability.error)} points on average."
        images = f" ({reliability.images:,} images.)" if reliability.images else ""
        yield f"{_cell(reliability.note)}{images}{error}"
    yield (
        "New categories were found by what images look like, without anybody's word on what belongs together: they may "
        "be finer or coarser than a person would have them, and their number is an estimate or was given."
    )
    yield "It was made for images like those above. Of others, with another camera, season or place, nothing is known."
    if discovery is not None and (edits := discovery.corrections().in_force):
        kinds = ", ".join(f"{count} × {kind}" for kind, count in Counter(str(edit["edit"]) for edit in edits).items())
        yield (
            f"Corrected by hand {len(edits)} time{'' if len(edits) == 1 else 's'} ({kinds}). Names, merged, split and "
            "junk categories count for new images too; what was said about single images does not, and nothing "
            "was learnt from any of it."
        )


def _cell(text: str) -> str:
    """Names come from files: in Markdown they are text and nothing else, neither table nor link nor tag."""
    return re.sub(r"([\\`*_{}\[\]()<>#!|&~:])", r"\\\1", visible(" ".join(text.split())))
