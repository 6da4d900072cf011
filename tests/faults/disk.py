"""A model of a disk that forgets: what a power cut leaves is only what was synced before it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

VARIANTS = ("names and contents", "contents", "half of the contents")


@dataclass(frozen=True)
class Cut:
    """The disk at one moment: what would be there after a power cut, and what had been promised until then."""

    safe_names: dict[int, dict[str, int]]  # inode of a folder → what it holds
    names: dict[int, dict[str, int]]  # the same, as programs see it
    safe: dict[int, bytes]  # inode of a file → its content
    written: dict[int, bytes]
    promised: int
    root: int

    def restore(self, target: Path, lost: str) -> Path:
        """The folder after the power is back; `lost` is what was not synced and is gone."""
        names = self.safe_names if lost == "names and contents" else self.names

        def fill(folder: Path, inode: int) -> None:
            folder.mkdir()
            for name, inside in names.get(inode, {}).items():
                if inside in self.names or inside in self.safe_names:
                    fill(folder / name, inside)
                else:
                    (folder / name).write_bytes(self._content(inside, lost))

        fill(target, self.root)
        return target

    def _content(self, inode: int, lost: str) -> bytes:
        safe, written = self.safe.get(inode, b""), self.written.get(inode, b"")
        if lost == "half of the contents" and written.startswith(safe):
            return written[: (len(safe) + len(written)) // 2]
        return safe


@dataclass
class ForgetfulDisk:
    """Watches a folder while a program works in it, and can tell what a power cut would leave at every step.

    >>> disk = ForgetfulDisk(folder)
    >>> with disk.watched(monkeypatch):
    ...     work(); disk.promised += 1
    >>> disk.cuts[3].restore(elsewhere, "contents")
    """

    root: Path
    promised: int = 0
    cuts: list[Cut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._safe_names, self._safe = self._look()  # what is there before is on the disk

    def _look(self) -> tuple[dict[int, dict[str, int]], dict[int, bytes]]:
        names: dict[int, dict[str, int]] = {}
        contents: dict[int, bytes] = {}
        for folder, folders, files in os.walk(self.root):
            inside = {name: os.lstat(os.path.join(folder, name)).st_ino for name in (*folders, *files)}
            names[os.lstat(folder).st_ino] = inside
            contents |= {inside[name]: Path(folder, name).read_bytes() for name in files}
        return names, contents

    def cut(self) -> None:
        names, contents = self._look()
        root = os.lstat(self.root).st_ino
        self.cuts.append(Cut(dict(self._safe_names), names, dict(self._safe), contents, self.promised, root))

    def _synced(self, handle: int) -> None:
        seen = os.fstat(handle)
        names, contents = self._look()
        if stat.S_ISDIR(seen.st_mode):
            self._safe_names[seen.st_ino] = names.get(seen.st_ino, {})
        elif seen.st_ino in contents:
            self._safe[seen.st_ino] = contents[seen.st_ino]

    @contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        def around(name: str, after: Callable[[int], None] | None = None) -> None:
            original = getattr(os, name)

            def call(*arguments: Any) -> Any:
                self.cut()
                result = original(*arguments)
                if after is not None:
                    after(*arguments)
                self.cut()
                return result

            monkeypatch.setattr(os, name, call)

        with monkeypatch.context() as monkeypatch:
            around("fsync", self._synced)
            around("replace")
            around("write")
            yield
        self.cut()
