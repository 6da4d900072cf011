"""The verb that renders the page of a finished run again, from its files, without torch."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..discovery.categories import Discovery
from ..errors import NewkindsError
from ..ownership import require_page, write_output
from ..runs.directory import RunDirectory


def report(run: str | Path, out: str | Path | None = None, images: str | Path | None = None) -> Path:
    """Render the page of a finished run again, with what people corrected since; returns the page's file.

    `out`: another file for it; nothing is written into the run then. `images`: where the images are now, if they moved.

    >>> newkinds.report("runs/photos", out="photos.html")
    """
    from ..discovery.report import render
    from ..discovery.report.build import PAGE, page_of, put_page, write_card

    directory = RunDirectory(run)
    file = directory.path(PAGE) if out is None else Path(out)
    inside = file.resolve() == directory.path(PAGE).resolve()
    if not inside:
        require_page(file, _inputs(directory, images), "found.html")
    else:
        directory.own.require(PAGE)
    page = page_of(directory, images)
    if not inside:
        write_output(file, render(page))
        return file
    try:
        put_page(directory, page)
        write_card(directory)
    except NewkindsError as error:
        raise NewkindsError(f"{error} To write the page elsewhere, name a file by --out.") from None
    return file


def _inputs(run: RunDirectory, images: str | Path | None) -> Iterator[Path]:
    """What the page is made of, which it must not replace."""
    from ..data.images import BadImage
    from ..discovery.originals import originals

    yield from run.own_files()
    with suppress(NewkindsError):  # there are no images to replace
        table = originals(run, Discovery.read(run.folder).found_members, images)
        if (file := table.file) is not None:
            for row in range(len(table)):
                with suppress(BadImage):
                    yield file(row)
