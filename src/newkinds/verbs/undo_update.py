"""The last update of a run is taken back whole: the result before it comes back, with what was corrected since."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..console import say, show_only_bars, warn
from ..discovery.categories import Discovery
from ..discovery.edits import Corrections, Edit, made_categories, reach_of, with_paths
from ..discovery.finished import FEATURES
from ..discovery.lessons import enter_decisions
from ..discovery.split import EMBEDDING
from ..errors import NewkindsError
from ..runs.changes import UpdateHistory, UpdateRecord
from ..runs.directory import ASSIGNMENTS, NAMES
from ..runs.run import Run
from ..text import plural
from .results import Correct, put_result
from .update import CHANGED_PICTURE, STAYS

RESTORED = (*STAYS, FEATURES, EMBEDDING, "described.json", "config.yaml", NAMES)  # and the assignments, last


def undo_update(run: str | Path, *, page: bool = True) -> Discovery:
    """Take the last update of a run back: the result before it comes back, with its images, categories and model.

    Corrections that were made since are made again, if their images and categories were there before; others are said.
    The ids that the update gave are not used again.

    >>> newkinds.undo_update("runs/photos")
    """
    opened = Run(run)
    Discovery.read(opened.folder)  # what is no run is said before anything is locked
    with opened.claimed("wait for it, then undo"):
        last = UpdateHistory.of(opened).last
        if last is None:
            raise NewkindsError(f"{opened.folder} has no update that could be undone.")
        source = Run(opened.path(last.earlier))
        if not source.is_answered:
            raise NewkindsError(
                f"the result before update {last.number}, {source.folder}, is not there any more: the update cannot be "
                "undone."
            )
        opened.drop_next()
        lost: list[str] = []
        with show_only_bars():  # first of all it is said that it is undone
            found = put_result(opened, source.config(), partial(_restore, opened, source, last, lost), page=page)
        say(f"update {last.number} is undone: {len(found.members):,} images, as before it")
        for sentence in lost:
            warn(sentence)
    return found


def _restore(run: Run, source: Run, last: UpdateRecord, lost: list[str], target: Run, correct: Correct) -> Discovery:
    """The earlier result, and the history, in which the update stays as undone."""
    present = Discovery.read(run.folder)
    target.copy_from(source, RESTORED)
    taken = max(last.next_id, present.corrections().next_id)
    updates = [
        replace(update, undone=True, next_id=taken) if update.number == last.number else update
        for update in UpdateHistory.of(run).updates
    ]
    UpdateHistory(updates).write(target)
    target.copy_from(source, [ASSIGNMENTS])
    restored = Discovery.read(target.folder)
    lost.clear()
    if last.better_model:  # the log began anew then: what was decided since is looked up by image
        restored.begin_log([edit for edit, _ in Discovery.read(source.folder).log()][: last.edits])
        _decide_again(present, restored, lost)
    else:
        restored.begin_log(_edits_again([edit for edit, _ in present.log()], restored, last, lost))
    return Discovery.read(target.folder)


def _decide_again(present: Discovery, restored: Discovery, lost: list[str]) -> None:
    """Names and decisions about images of one result, entered into another one with the same ids."""
    names = restored.corrections().names
    for category in present.categories:
        if names.get(category.id, category.name) != category.name and category.name not in names.values():
            restored.rename(category.id, category.name)
    there = {member.path: member for member in restored.members}
    moved: dict[int, list[str]] = {}
    accepted, junk, gone = list[str](), list[str](), 0
    for member in present.members:
        then = there.get(member.path)
        if not member.status or then is None or (then.category_id, bool(then.status)) == (member.category_id, True):
            continue
        if member.status == "junk":
            junk.append(member.path)
        elif then.category_id == member.category_id:
            accepted.append(member.path)
        elif member.category_id in names:
            moved.setdefault(member.category_id, []).append(member.path)
        else:
            gone += 1
    enter_decisions(restored, accepted, moved, junk)
    if gone:
        lost.append(f"{plural(gone, 'image')} had been put into categories that came with the update.")


def _edits_again(edits: Sequence[Edit], restored: Discovery, last: UpdateRecord, lost: list[str]) -> list[Edit]:
    """The edits that were made before the update, and those since that still fit; `lost` says which do not."""
    back = dict(last.renamed)
    back.update({CHANGED_PICTURE.format(path, last.number): path for path in last.changed})
    was = [with_paths(edit, lambda path: back.get(path, path)) for edit in edits]
    kept, number = list(was[: last.edits]), {edit["n"]: edit["n"] for edit in was[: last.edits]}
    there = {member.path for member in restored.found_members}
    names = {category.id: category.name for category in restored.found_categories}
    known = {*names, *(made for edit in kept for made in made_categories(edit))}
    found = {member.path: member.category_id for member in restored.found_members}
    for edit in was[last.edits :]:
        again = {**edit, "n": len(kept) + 1}
        if edit["edit"] in ("undo", "redo"):
            if edit.get("of") not in number:  # of an edit that is lost itself
                continue
            again["of"] = number[edit["of"]]
        categories, images = reach_of(edit)
        fits = images <= there and categories <= known | set(made_categories(edit))
        try:
            if fits:
                Corrections(names, found, [*kept, again])
        except NewkindsError:
            fits = False
        if not fits:
            lost.append(f"not made again, for it is about what came with the update: {edit.get('says', edit['edit'])}.")
            continue
        number[edit["n"]] = again["n"]
        known |= set(made_categories(edit))
        kept.append(again)
    return kept
