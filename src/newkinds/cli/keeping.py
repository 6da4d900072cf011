"""The verbs about what is installed, downloaded or cached."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import NewkindsError
from ..text import show
from .options import JSON, argument, choices, switch, verb


@verb(argument("names", "NAME", "data sets (default: all)", nargs="*"), *choices("data_root"))
def _data_check(names: Sequence[str] = (), data_root: str | None = None) -> int:
    """Count and decode the images of each data set, and compare them with the published split.
    What is missing is reported, with where to get it.

    newkinds data check                               which benchmark data sets are available and complete
    newkinds data check cub cars --data-root datasets/
    """
    from ..data.published.benchmark_check import check_benchmarks

    checked = check_benchmarks(names, data_root)
    show("\n\n".join(report.text() for report in checked))
    usable = [report.usable for report in checked]
    return 0 if (all(usable) if names else any(usable)) else 1


@verb()
def _cache_list() -> None:
    """What is cached, and how large it is.

    newkinds cache list                               cached tokens, and how large they are
    """
    from ..training.store import cache_listing, cache_root, list_caches

    show(cache_listing(list_caches(), f"in {cache_root()}"))


@verb(
    argument("keys", "KEY", "as newkinds cache list shows them", nargs="*"),
    switch("--all", "everything", "delete all of them"),
)
def _cache_clear(keys: Sequence[str] = (), everything: bool = False) -> None:
    """Delete caches; they are made again when they are needed.

    newkinds cache clear 3f0c7a2b9d4e1f56             delete one; they are made again when needed
    newkinds cache clear --all
    """
    from ..training.store import cache_listing, cache_root, clear_caches

    if bool(keys) == everything:
        raise NewkindsError("name the caches to delete (newkinds cache list shows them), or say --all.")
    show(cache_listing(clear_caches(keys), f"deleted from {cache_root()}"))


@verb(argument("file", "FILE.py", "Python file that registers parts"), *choices("settings"), JSON)
def _plugin_check(file: str, settings: Sequence[Mapping[str, Any]] = (), as_json: bool = False) -> int:
    """Ask of every part that a file registers what ours promise, on a few drawn creatures: finite losses, gradients for
    all that trains, odd batches, the same bits after a kill … What does not hold is named with its line.

    newkinds plugin check mine.py                     does a method of your own keep its promises?
    newkinds plugin check birds.py --set data.root=birds/
    """
    from ..contracts.plugin import answers_json, answers_text, check_plugin

    answers = check_plugin(file, settings)
    show(json.dumps(answers_json(answers), indent=2) if as_json else answers_text(answers))
    return 1 if any(answer.outcome == "broken" for answer in answers) else 0


KINDS = (
    "methods", "organizers", "tunings", "assigners", "backbones", "datasets", "checks", "counters", "recipes",
    "exports",
)  # fmt: skip


@verb(argument("kind", "KIND", ", ".join(KINDS), nargs="?", choices=KINDS, default=None))
def _list(kind: str | None) -> None:
    """What there is to choose from.

    newkinds list                                     methods, organizers, backbones … to choose from
    newkinds list organizers
    """
    from ..verbs.listing import listing

    show(listing(kind))
