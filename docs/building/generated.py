"""The folder of pages that are made when the site is built; git ignores it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
GENERATED = "generated"


def write_pages(pages: Mapping[str, str]) -> None:
    """Write what has changed, and remove what is no longer there: `{"verbs/discover.md": text}`."""
    folder = DOCS / GENERATED
    for name, text in pages.items():
        file = folder / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    for file in folder.rglob("*"):
        if file.is_file() and file.relative_to(folder).as_posix() not in pages:
            file.unlink()
