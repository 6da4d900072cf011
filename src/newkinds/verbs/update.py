"""The verb for what comes later: new images go into the categories of a run, which stay as they are."""

import os
import time as clock
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from ..console import say, warn
from ..data import OF_FILES
from ..data.corrections import corrections_text, read_corrections
from ..data.more import SETTING as MORE
from ..data.more import table_of_entry
from ..data.vectors import open_vectors
from ..discovery.categories import Discovery
from ..discovery.described import Described, TypicalFields, read_described, write_described
from ..discovery.edits import POOL, Edit, with_paths
from ..discovery.finished import FEATURES, LoadedRun, load, read_features
from ..discovery.growing import Grown, Growth, categories_of
from ..discovery.history import update_text
from ..discovery.kinds import Member
from ..discovery.placing import Placer
from ..discovery.split import EMBEDDING
from ..errors import NewkindsError, Skipped
from ..runs.changes import OpenedCategory, OpeningEvidence, RefinedRecord, UpdateHistory, UpdateRecord
from ..runs.config import Config
from ..runs.directory import BEGINNING, CORRECTIONS
from ..runs.protocol import describe_protocol, record_grown
from ..runs.records import Findings, Reliability
from ..runs.run import Run
from ..search.clock import seconds_of
from ..text import escaped, plural
from ..training.embedding import Embedded
from .arrivals import Arrivals, look_for_arrivals, moved_corrections
from .improve import improve
from .results import Correct, put_result

TEN_MINUTES = 600.0
CHANGED_PICTURE = "{} (until update {})"  # how the log calls an image that another one has replaced at the same place
# what stays true of a run to which images come
STAYS = (*BEGINNING, "model.safetensors", "fields.safetensors", Reliability.FILE, Findings.FILE, RefinedRecord.FILE)


def update(
    run: str | Path, more: str | Path | Sequence[str | Path] = (), *, time: str | float | None = None,
    device: str = "auto", page: bool = True,
) -> Discovery:  # fmt: skip
    """Put images that came since into the categories of a run, which stay as they are: ids, names, members, and all
    that people corrected.

    New images are those that the run's own folder or list has now besides, and those that `more` names: files, folders,
    lists (.csv) or, for a run of vectors, .npy files. They are embedded and placed by the run's model. A category is
    opened if enough of them are alike and like no other, by a rule that the labelled images confirm; what is unlike
    every category waits in the pool. Images that are gone, changed or moved are noticed. `time`:
    afterwards, look for a better model so long, with every decision kept (see `improve`). The earlier
    result is kept in `earlier/`, and `undo_update` takes the update back.

    >>> found = newkinds.update("runs/photos", "week-47/")
    >>> len(found.pool)
    """
    seconds = None if time is None else seconds_of(time, TEN_MINUTES)
    opened = Run(run)
    before = Discovery.read(opened.folder)
    entries = [more] if isinstance(more, (str, Path)) else list(more)
    with opened.claimed("wait for it, then update"):
        opened.drop_next()
        config = _with_more(opened.config(), entries)
        arrivals = look_for_arrivals(opened, before, config)
        say(f"{opened.folder}: {arrivals.sentence()}")
        _mention(arrivals)
        found = before
        if arrivals:
            found = put_result(opened, config, partial(_write, _Update(opened, config, arrivals, device)), page=page)
        if seconds is not None:
            found = improve(opened, seconds, device, page, updated=bool(arrivals))
    return found


def _with_more(config: Config, entries: Sequence[str | Path]) -> Config:
    """The settings, which name these files and folders from now on."""
    named = [os.path.abspath(entry) for entry in entries]
    if named and config.data["name"] not in OF_FILES:
        raise NewkindsError(f"{config.data['name']} is a data set: no images can be added to it, only to your own.")
    for entry in named:
        if not os.path.lexists(entry):
            raise NewkindsError(f"there is no file or folder {entry}.")
        _require_images(Path(entry), config)
    every = list(dict.fromkeys([*config.data.get(MORE, []), *named]))
    return config if not every else replace(config, data={**config.data, MORE: every})


def _require_images(entry: Path, config: Config) -> None:
    """Refuse what holds no image, or vectors of another sort than the run's."""
    vectors = open_vectors(Path(config.data["path"])) if config.data["name"] == "vectors" else None
    if not len(table := table_of_entry(entry, vectors)):
        why = f": {table.skipped[0].reason}" if table.skipped else ""
        raise NewkindsError(f"there is no image in {entry}{why}.")


def _mention(arrivals: Arrivals) -> None:
    """What is not added, and what may surprise."""
    if arrivals.copies:
        path, same = next(iter(arrivals.copies.items()))
        say(f"not added twice: {escaped(path)} shows the same as {escaped(same)}{_more(len(arrivals.copies))}")
    if arrivals.unreadable:
        first = arrivals.unreadable[0]
        some = f"{plural(len(arrivals.unreadable), 'file')} that came cannot be read"
        which = some if arrivals.new else "none of what came can be read"
        warn(f"{which}, such as {escaped(first.path)}: {first.reason}.")
    if arrivals.gone:
        leave = "image is gone and leaves" if len(arrivals.gone) == 1 else "images are gone and leave"
        warn(f"{len(arrivals.gone):,} {leave} the run, such as {escaped(arrivals.gone[0])}.")


def _more(count: int) -> str:
    return f", and {count - 1:,} more" if count > 1 else ""


# -- the new result ----------------------------------------------------------------------------------------------------


class _Update:
    """One update of a run: what came, embedded once."""

    def __init__(self, run: Run, config: Config, arrivals: Arrivals, device: str) -> None:
        self.run, self.config, self.started = run, config, clock.monotonic()
        self.loaded: LoadedRun = load(run.folder, device)
        self.features: Tensor = read_features(run)  # (n, D) of the images that were there
        self.history = UpdateHistory.of(run)
        self.number = max((update.number for update in self.history.updates), default=0) + 1
        fresh = arrivals.fresh
        embedded = Embedded(torch.empty(0, self.features.shape[1]), [], [])
        if fresh:
            embedded = self.loaded.embed(arrivals.table.rows(fresh))
        self.arrivals = without_unembedded(arrivals, embedded.skipped)
        self.came = embedded.features  # (m, D) in the order of `arrivals.fresh`


def without_unembedded(arrivals: Arrivals, skipped: Sequence[Skipped]) -> Arrivals:
    """What came, except for images that have vanished while they were embedded."""
    if not skipped:
        return arrivals
    bad = {one.path for one in skipped}
    table = arrivals.table
    kept = [row for row, path in enumerate(table.paths) if path not in bad]
    place = {row: position for position, row in enumerate(kept)}
    return replace(
        arrivals,
        table=replace(table.rows(kept), skipped=[*table.skipped, *skipped]),
        new=[place[row] for row in arrivals.new if row in place],
        changed=[place[row] for row in arrivals.changed if row in place],
        relabelled=[place[row] for row in arrivals.relabelled],
        gone=[*arrivals.gone, *(table.paths[row] for row in arrivals.changed if row not in place)],
    )


def _write(of: _Update, target: Run, correct: Correct) -> Discovery:
    """The whole result: what was there, as it was, and what came. Decisions need not be carried over: their log stays
    (`correct` is for other assignments)."""
    found, arrivals = Discovery.read(of.run.folder), of.arrivals
    before = {member.path: row for row, member in enumerate(found.found_members)}
    table = arrivals.table
    rows = {path: before[arrivals.was[path]] for path in table.paths if path in arrivals.was}
    features = torch.empty(len(table), of.features.shape[1])
    old = [place for place, path in enumerate(table.paths) if path in rows]
    features[old] = of.features[[rows[table.paths[place]] for place in old]]
    features[arrivals.fresh] = of.came
    members = [
        found.found_members[rows[path]]._replace(path=path, given_label=label)
        if path in rows
        else Member(path, label, "", False, 0.0, since=of.number)
        for path, label in zip(table.paths, table.labels, strict=True)
    ]
    decided = found.corrections().place
    in_pool = [place for place in old if members[place].category_id == POOL]
    waiting = [place for place in in_pool if arrivals.was[table.paths[place]] not in decided]
    labelled = [row for row in arrivals.relabelled if table.labels[row] is not None]
    to_place = sorted({*arrivals.fresh, *waiting, *labelled})
    placer = Placer(of.loaded.model, found, lambda: of.features)
    names = {opened.name for update in of.history.updates for opened in update.opened}
    growth = Growth(placer, found, of.features, names, max([0, *(u.next_id for u in of.history.updates)]))
    grown = growth.place([members[place] for place in to_place], features[to_place])
    for place, member in zip(to_place, grown.members, strict=True):
        members[place] = member
    _write_files(of, target, features, old, rows)
    categories = categories_of(grown.categories.entries, members)
    result = Discovery(target.folder, categories, members, table.skipped, grown.categories.next_id)
    result.begin_log(_edits(found, of))
    record = _record(of, result, grown, [members[place] for place in to_place])
    UpdateHistory([*of.history.updates, record]).write(target)
    result.write()  # last
    say(update_text(record, {c.id: c.name for c in result.categories}))
    return result


def _write_files(of: _Update, target: Run, features: Tensor, old: list[int], rows: dict[str, int]) -> None:
    """All that a run has besides its tables; large files that stay are links."""
    table = of.arrivals.table
    target.copy_from(of.run, STAYS)
    if target.path(CORRECTIONS).is_file():
        said = read_corrections(of.run.verified(CORRECTIONS))
        target.write(CORRECTIONS, corrections_text(moved_corrections(said, of.arrivals)))
    target.write("config.yaml", of.config.as_yaml())
    record_grown(target, table, of.run)
    target.write(FEATURES, save({"features": features}))
    kept = load_file(of.run.verified(EMBEDDING))["embedding"]  # (n, P) float16
    embedding = torch.empty(len(table), kept.shape[1], dtype=kept.dtype)
    embedding[old] = kept[[rows[table.paths[place]] for place in old]]
    embedding[of.arrivals.fresh] = torch.from_numpy(of.loaded.embedding(of.came)).to(kept.dtype)
    target.write(EMBEDDING, save({"embedding": embedding}))
    described = Described(of.loaded.model.known, describe_protocol(target))
    write_described(replace(described, fields=_fields(of)), target)


def _fields(of: _Update) -> TypicalFields | None:
    """The primitive fields of typical images that are still there."""
    fields = read_described(of.run).fields
    if fields is None:
        return None
    there = [place for place, path in enumerate(fields.paths) if path in of.arrivals.was]
    return fields.of(there) if there else None


def _edits(found: Discovery, of: _Update) -> list[Edit]:
    """The log as it is, about images as they are called now. What was said about a picture that has been replaced by
    another one at the same place does not count for that one."""
    now = {old: path for path, old in of.arrivals.renamed.items()}
    for row in of.arrivals.changed:
        path = of.arrivals.table.paths[row]
        now[path] = CHANGED_PICTURE.format(path, of.number)
    return [with_paths(edit, lambda path: now.get(path, path)) for edit, _ in found.log()]


def _record(of: _Update, result: Discovery, grown: Grown, placed: Sequence[Member]) -> UpdateRecord:
    state = result.corrections()
    sizes = {category.id: category.size for category in result.found_categories}
    names = {category.id: category.name for category in result.found_categories}
    went = Counter(state.now(member.category_id) for member in placed if member.category_id != POOL)
    arrivals, rule = of.arrivals, grown.rule
    return UpdateRecord(
        number=of.number,
        at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        came=len(arrivals.new),
        placed={str(number): count for number, count in sorted(went.items())},
        pool=len(result.pool),
        next_id=max(grown.categories.next_id, state.next_id),
        opened=[
            OpenedCategory(number, names[number], sizes[number], by_label)
            for number, by_label in grown.categories.opened.items()
        ],
        gone=arrivals.gone,
        changed=[arrivals.table.paths[row] for row in arrivals.changed],
        renamed=arrivals.renamed,
        copies=arrivals.copies,
        skipped=len(arrivals.unreadable),
        evidence=None
        if rule is None
        else OpeningEvidence(
            rule.threshold, rule.smallest, rule.hidden, rule.found, rule.openings, rule.false, rule.sentence
        ),
        edits=result.revision,
        seconds=round(clock.monotonic() - of.started, 1),
        earlier=of.run.next_archive(),
    )
