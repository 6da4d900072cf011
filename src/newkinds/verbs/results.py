"""How one result of a run follows another: whole, with what people decided, the earlier one still reachable."""

from collections.abc import Callable
from functools import partial

import numpy as np

from ..cluster.metrics import is_correct
from ..console import say, warn
from ..discovery.carry import carry_over, match_renamed
from ..discovery.categories import Discovery
from ..discovery.report.build import CARD, PAGE, write_card, write_page
from ..discovery.split import read_embedding
from ..files import make_folder
from ..runs.config import Config
from ..runs.run import Run
from ..runs.seen_images import earlier_images

Correct = Callable[[Discovery], None]  # enters what people have decided
Write = Callable[[Run, Correct], Discovery]  # writes a whole result into a run directory


def put_result(
    run: Run, config: Config, write: Write, *, decided_in: Run | None = None, keep_earlier: bool = True,
    page: bool = True,
) -> Discovery:  # fmt: skip
    """Write a result into a run. If it has one already, the new one takes its place when it is whole.

    What people decided about images and categories of the earlier result, or of the run `decided_in`, is entered into
    the new one; what cannot be is said. The earlier result stays in `earlier/N`, unless nobody has asked for it
    (`keep_earlier`) and nobody has corrected it.
    """
    with run.claimed():
        if run.is_answered:
            _replace(run, run, run.next_for(config), write, keep_earlier)
        elif run.path("config.yaml").is_file() and not run.has_settings(config):  # of an attempt that was interrupted
            _replace(run, decided_in, run.next_for(config), write, keep_earlier)
        else:
            _write_with_decisions(run, decided_in, write)
        found = Discovery.read(run.folder)
        write_views(run, page)
        return found


def write_views(run: Run, page: bool = True) -> None:
    """Show a result: the page, if it is wanted, and the card."""
    if page:
        write_page(run)
    write_card(run)


def changes_text(before: Discovery, after: Discovery) -> str:
    """How a result of the same images differs from an earlier one; empty if it does not. Categories are matched one to
    one by the images that they share: ids are counted anew in each result."""
    was = {member.path: member.category_id for member in before.found_members}
    of_both = [(was.get(member.path, -1), member.category_id) for member in after.found_members]
    then, now = np.array([pair for pair in of_both if min(pair) >= 0], dtype=np.int64).reshape(-1, 2).T
    changed = int((~is_correct(then, now)).sum()) if len(now) else 0
    k_then, k_now = len(before.found_categories), len(after.found_categories)
    if not changed and k_then == k_now:
        return ""
    number = f"{k_now} categories as before" if k_then == k_now else f"before {k_then} categories, now {k_now}"
    return f"since the first answer: {number}; {changed:,} of {len(now):,} images changed their category"


def finished_result(run: Run, page: bool = True) -> Discovery:
    """A result that is there already; what shows it is written if the work was killed just before that."""
    if (page and not run.path(PAGE).is_file()) or not run.path(CARD).is_file():
        with run.claimed():
            write_views(run, page)
    return Discovery.read(run.folder)


def _replace(run: Run, decided_in: Run | None, target: Run, write: Write, keep_earlier: bool) -> None:
    """Write the result beside the present one, and then put it in its place."""
    make_folder(target.folder)
    revision = _write_with_decisions(target, decided_in, write)
    if run.is_answered and (keep_earlier or revision > 0):
        say(f"the earlier result is kept in {run.archive()}")
    target.remove(target.state_file.name)  # of a training that is finished
    run.replace_by_next()


def _write_with_decisions(target: Run, decided_in: Run | None, write: Write) -> int:
    """Write a result, with what people have decided; how many edits of theirs it has seen."""
    if decided_in is None or not decided_in.is_answered:
        write(target, lambda found: None)
        return 0
    revision, lost = -1, list[str]()
    while revision != (before := Discovery.read(decided_in.folder)).revision:  # somebody may correct it meanwhile
        revision = before.revision
        lost.clear()
        target.forget_edits()
        write(target, partial(_carry, decided_in, target, before, lost))
    for sentence in lost:
        warn(sentence)
    return revision


def _carry(decided_in: Run, target: Run, before: Discovery, lost: list[str], found: Discovery) -> None:
    """Enter the decisions about `before` into what was `found`; images that were renamed are known by their pixels."""
    renamed = match_renamed(_contents(decided_in), _contents(target))
    embedding = partial(read_embedding, target, len(found.found_members))
    lost += carry_over(before, found, was=renamed, embedding=embedding)


def _contents(run: Run) -> dict[str, str]:
    """Image → a digest of its pixels."""
    return {path: seen.content for path, seen in earlier_images(run).items()}
