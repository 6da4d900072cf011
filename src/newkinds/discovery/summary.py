"""What was found, in a few lines for the terminal."""

import shlex

from ..text import escaped, plural, text_table
from .categories import Discovery
from .collapse import collapse_text
from .doubts import doubts_of, label_notes
from .promise import promises_text

MOST_NOTES = 5  # on names of categories
MOST_WAITING = 3  # images that are not placed yet, by name


def discovery_text(discovery: Discovery) -> str:
    """New categories with their sizes, and where to look."""
    rows = [[c.name, f"{c.id}", str(c.size), f"{c.confidence:.2f}"] for c in discovery.new]
    table = text_table(["new category", "id", "images", "confidence"], rows) if rows else "no new category has members"
    unlike_count = sum(member.is_unlike for member in discovery.members)
    are = "image is" if unlike_count == 1 else "images are"
    unlike = f"{unlike_count} {are} unlike every category (unlike > 1): see the report\n"
    pool_count = len(discovery.pool)
    waits = "image waits" if pool_count == 1 else "images wait"
    named = ", ".join(escaped(member.path) for member in discovery.pool[:MOST_WAITING])
    more = f" and {pool_count - MOST_WAITING:,} more" if pool_count > MOST_WAITING else ""
    where = f"newkinds next {shlex.quote(str(discovery.run))} --only pool asks where they belong"
    pool = (
        f"{pool_count} {waits} to be placed: like no category, and too few are alike to open one: {named}{more}\n"
        f"  {where}\n"
    )
    doubtful, notes = len(doubts_of(discovery)), label_notes(discovery)
    were = "labelled image stays in its class" if doubtful == 1 else "labelled images stay in their class"
    doubts = f"{doubtful} {were} although the model would say another: see Labels to check in the report\n"
    names = {category.id: category.name for category in discovery.categories}
    about_names = "".join(f"{names[number]}: {note}\n" for number, note in list(notes.items())[:MOST_NOTES])
    if len(notes) > MOST_NOTES:
        about_names += f"and {len(notes) - MOST_NOTES} more such notes in the report\n"
    edits = len(discovery.corrections().in_force)
    corrected = f"with {edits} correction{'' if edits == 1 else 's'} by hand (newkinds log {discovery.run})\n"
    collapsed = f"{text}\n" if (text := collapse_text(discovery)) else ""
    tables = f"tables in {discovery.run / 'assignments.csv'}"
    if edits:
        tables += f", as found; with corrections: newkinds export {discovery.run} --to csv --out FILE"
    return (
        f"{table}\n\n{plural(len(discovery.members), 'image')} assigned "
        f"({plural(len(discovery.known), 'known category')}, {len(discovery.new)} new), "
        f"{len(discovery.skipped)} skipped\n"
        f"{about_names}{doubts if doubtful else ''}{unlike if unlike_count else ''}{pool if pool_count else ''}"
        f"{corrected if edits else ''}"
        f"{collapsed}"
        f"{promises_text(discovery)}\n"
        f"look at {discovery.run / 'report.html'}; {tables}"
    )
