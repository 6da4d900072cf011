"""What people said about single images of a run, by a label or a decision, found again by what an image shows: its file
may be elsewhere by now, or on another machine, and another image may have its name. No image of the run is needed for
that."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import PurePath

from ..console import warn
from ..data.fragments import WHOLE
from ..data.headers import look_at_header
from ..data.images import ENOUGH, BadImage, content_digest
from ..data.table import Table
from ..runs.directory import IMAGES, RunDirectory
from ..runs.seen_images import earlier_images
from .kinds import Member

AT_ONCE = 4  # images that are decoded at the same time: each may need a lot of memory


class Decisions:
    """The categories that people gave to single images: by labels, by accepting, moving or throwing out.

    >>> Decisions(run, Discovery.read(run.folder).members).about(table, [0, 1])
    [7, None]
    """

    def __init__(self, run: RunDirectory, members: Sequence[Member]) -> None:
        decided = [member for member in members if member.status or member.given_label is not None]
        seen = earlier_images(run) if decided else {}
        self._by_content: dict[str, list[Member]] = {}
        self._sizes: set[tuple[int, ...]] | None = set()  # of these images; None: not known of all
        unknown = 0
        for member in decided:
            then = seen.get(member.path)
            if then is None or not then.content:
                unknown += bool(member.status)
                continue
            self._by_content.setdefault(then.content, []).append(member)
            if then.facts is None:
                self._sizes = None
            elif self._sizes is not None:
                self._sizes.add(tuple(sorted((then.facts.width, then.facts.height))))
        if unknown:
            warn(
                f"{run.path(IMAGES)} does not say what {unknown} image(s) showed that you decided about: if they are "
                "predicted, your decision is not looked up."
            )

    def about(self, table: Table, rows: Sequence[int]) -> list[int | None]:
        """The category that people gave to each of the images in `rows`, or None."""
        if not self._by_content:
            return [None] * len(rows)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda row: self._about(table, row), rows))

    def _about(self, table: Table, row: int) -> int | None:
        members = self._by_content.get(self._content(table, row), [])
        given = {member.category_id for member in members}
        if len(given) > 1:  # copies of one image, about which people said different things
            name = PurePath(table.paths[row]).name
            given = {member.category_id for member in members if PurePath(member.path).name == name}
        return given.pop() if len(given) == 1 else None

    def _content(self, table: Table, row: int) -> str:
        """The digest of an image's pixels; empty if its size tells, without decoding, that it is none of these."""
        if table.vectors is not None:
            return sha256(table.vectors[row].tobytes()).hexdigest()[:32]
        try:
            if table.file is not None and self._sizes is not None and table.part_of(row) == WHOLE:
                width, height, _ = look_at_header(table.file(row))
                # a larger JPEG is decoded at a fraction of its size
                if min(width, height) <= 2 * ENOUGH and tuple(sorted((width, height))) not in self._sizes:
                    return ""
            return content_digest(table.open(row))
        except BadImage:  # it has vanished since it was embedded
            return ""
