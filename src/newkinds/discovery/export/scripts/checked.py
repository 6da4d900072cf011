"""Importing this makes sure that the files beside it are as they were exported."""

import hashlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

for entry in (HERE / "checksums.txt").read_text(encoding="utf-8", errors="replace").splitlines():
    digest, _, name = entry.partition("  ")
    sha = hashlib.sha256()
    try:
        with open(HERE / name, "rb") as file:
            while piece := file.read(1 << 20):
                sha.update(piece)
    except (OSError, ValueError):
        sha.update(b"missing")
    if sha.hexdigest()[:16] != digest:
        sys.exit(
            f"{HERE / name} is not as it was exported, or checksums.txt is damaged: export the model again. To keep a "
            "change of your own, delete the line about it in checksums.txt."
        )
