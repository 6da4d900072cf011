"""Archives as data sets are shipped in: whether one that was downloaded can be unpacked."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from lzma import LZMAError
from pathlib import Path
from typing import IO

from ...console import track

MEGABYTE = 1 << 20
DAMAGE = (OSError, EOFError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError)


def what_to_do_with(archive: Path) -> str:
    """One sentence: unpack it, or get it again. It is read to its end, for checksums stand there.

    >>> what_to_do_with(Path("datasets/CUB_200_2011.tgz"))
    'Unpack datasets/CUB_200_2011.tgz first.'
    """
    try:
        with open(archive, "rb") as file:
            megabytes = archive.stat().st_size // MEGABYTE
            for _ in track(_megabytes_read(file), f"reading {archive.name} (MB)", total=megabytes):
                pass
    except DAMAGE as error:
        if isinstance(error, OSError) and error.strerror:  # what decompressors raise has none
            return f"{archive} cannot be read: {error.strerror}."
        return f"{archive} is damaged or truncated ({type(error).__name__}): get it again."
    return f"Unpack {archive} first."


def _megabytes_read(file: IO[bytes]) -> Iterator[int]:
    """Read a whole archive in small pieces; gives a number with each megabyte of the file."""
    done = 0
    for _ in _zip_pieces(file) if file.name.endswith(".zip") else _tar_pieces(file):
        while done < file.tell() // MEGABYTE:
            done += 1
            yield done


def _zip_pieces(file: IO[bytes]) -> Iterator[bytes]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            with archive.open(member) as content:
                yield from _pieces(content.read)


def _tar_pieces(file: IO[bytes]) -> Iterator[bytes]:
    with tarfile.open(fileobj=file) as archive:
        for _ in archive:  # where a tar is not compressed, only this finds that its end is missing
            yield b""
        assert archive.fileobj is not None
        yield from _pieces(archive.fileobj.read)  # the tar ends before the compressed file does


def _pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while piece := read(MEGABYTE):
        yield piece
