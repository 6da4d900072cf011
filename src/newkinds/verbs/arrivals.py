"""What came to a run since its result was found: images that are new, gone, changed, renamed or copies. By content, so
that a photo is the same wherever it lies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ..data import load_table
from ..data.corrections import Correction
from ..data.table import ImageRecord, Table, look_at_all
from ..discovery.categories import Discovery
from ..errors import NewkindsError, Skipped
from ..runs.config import Config
from ..runs.run import Run
from ..runs.seen_images import copies_left_out, earlier_images
from ..text import escaped


@dataclass(frozen=True)
class Arrivals:
    """The images of a run as they are now, and how they differ from those of its result."""

    table: Table  # all that belong to the run, with what each shows; what cannot be read is skipped
    was: dict[str, str]  # path now → path before, of images that were there
    new: list[int]  # rows that were not there
    changed: list[int]  # rows that show something else than before
    relabelled: list[int]  # rows that were there, and have another label now
    gone: list[str]
    renamed: dict[str, str]  # path now → path before
    copies: dict[str, str]  # a path that came and is not added → the image that shows the same
    unreadable: list[Skipped]  # of those that came

    @property
    def fresh(self) -> list[int]:
        """Rows that are to be embedded."""
        return sorted([*self.new, *self.changed])

    def __bool__(self) -> bool:
        """Whether the result is to be another one."""
        return bool(self.new or self.changed or self.relabelled or self.gone or self.renamed)

    def sentence(self) -> str:
        """What came, in words."""
        counts = {
            "new": len(self.new), "changed": len(self.changed), "with another label": len(self.relabelled),
            "gone": len(self.gone), "renamed or moved": len(self.renamed),
            "there already, by content": len(self.copies), "unreadable": len(self.unreadable),
        }  # fmt: skip
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing new"


def look_for_arrivals(run: Run, found: Discovery, config: Config) -> Arrivals:
    """Read the data of a run again, as `config` names it. Only files that changed are opened."""
    try:
        table = load_table(config.data)
    except NewkindsError as error:
        raise NewkindsError(f"the images of {run.folder} are not there: {error}") from None
    earlier = earlier_images(run)
    before = {member.path: member for member in found.found_members}
    seen = look_at_all(table, contents=True, earlier=earlier)
    record = {table.paths[row]: image for row, image in enumerate(seen) if isinstance(image, ImageRecord)}
    bad = [image for image in seen if isinstance(image, Skipped)]
    then = {path: earlier[path].content if path in earlier else "" for path in before}
    came = [path for path in record if path not in before]
    gone = [path for path in before if path not in record]
    renamed = match_moved({path: then[path] for path in gone}, {path: record[path].content for path in came})
    if before and len(gone) == len(before) and len(renamed) < len(gone):
        raise NewkindsError(
            f"none of the {len(before):,} images of {run.folder} is where it was, such as {escaped(gone[0])}: put them "
            "back (is the drive connected?), then update again. Nothing was changed."
        )
    here = {path for path in before if path in record}
    changed = {path for path in here if then[path] and record[path].content != then[path]}
    first = {record[path].content: path for path in here - changed}
    first.update({record[path].content: path for path in renamed})
    copies: dict[str, str] = {}
    for path in came:
        if path not in renamed:
            same = first.setdefault(record[path].content, path)
            if same != path:
                copies[path] = same
    known_copies, known_bad = _left_out_before(run, found)
    left_out = [Skipped(path, f"the same image as {same}, which is in the run") for path, same in copies.items()]
    rows = [row for row, path in enumerate(table.paths) if path in record and path not in copies]
    kept = replace(
        table.rows(rows),
        seen=[record[table.paths[row]] for row in rows],
        skipped=[*table.skipped, *bad, *left_out],
    )
    was = {path: path for path in here - changed} | renamed
    kept = _with_labels(kept, found, was, config)
    place = {path: row for row, path in enumerate(kept.paths)}
    return Arrivals(
        table=kept,
        was=was,
        new=[place[path] for path in came if path not in renamed and path not in copies],
        changed=sorted(place[path] for path in changed),
        relabelled=[
            place[path] for path, old in was.items() if kept.labels[place[path]] != before[old].given_label
        ],
        gone=[path for path in gone if path not in set(renamed.values())],
        renamed=renamed,
        copies={path: same for path, same in copies.items() if path not in known_copies},
        unreadable=[one for one in bad if one.path not in known_bad and one.path not in before],
    )  # fmt: skip


def match_moved(gone: Mapping[str, str], came: Mapping[str, str]) -> dict[str, str]:
    """Path now → path before of images that lie elsewhere now, by digests of their content (path → digest). Of several
    copies, one of the same file name goes first.

    >>> match_moved({"a.jpg": "11"}, {"b.jpg": "11", "new/a.jpg": "11"})
    {'new/a.jpg': 'a.jpg'}
    """
    places: dict[str, list[str]] = {}
    for path, content in came.items():
        places.setdefault(content, []).append(path)
    found = {}
    for path, content in gone.items():
        if content and (left := places.get(content)):
            same_name = [other for other in left if PurePath(other).name == PurePath(path).name]
            chosen = (same_name or left)[0]
            left.remove(chosen)
            found[chosen] = path
    return found


def _left_out_before(run: Run, found: Discovery) -> tuple[set[str], set[str]]:
    """Copies and unreadable files that were told before."""
    return copies_left_out(run), {skipped.path for skipped in found.skipped}


def _with_labels(table: Table, found: Discovery, was: Mapping[str, str], config: Config) -> Table:
    """Of a refined run, whose labels are listed by path, an image keeps its label when it is moved."""
    if config.data.get("corrections") is None:
        return table
    given = {member.path: member.given_label for member in found.found_members}
    labels = [
        given[was[path]] if label is None and path in was and was[path] != path else label
        for path, label in zip(table.paths, table.labels, strict=True)
    ]
    return replace(table, labels=labels)


def moved_corrections(said: Sequence[Correction], arrivals: Arrivals) -> list[Correction]:
    """What a refined run was taught, about images as they are called now; what shows something else is left out."""
    now = {old: path for path, old in arrivals.renamed.items()}
    changed = {arrivals.table.paths[row] for row in arrivals.changed}
    return [replace(c, path=now.get(c.path, c.path)) for c in said if c.path not in changed]
