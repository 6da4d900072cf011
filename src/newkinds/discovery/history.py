"""What came to a run and when, in words. Without torch."""

from collections.abc import Mapping

from ..runs.changes import UpdateHistory, UpdateRecord
from ..text import escaped, plural, text_table
from .edits import JUNK

MOST_NAMED = 8  # categories in a line


def update_text(update: UpdateRecord, names: Mapping[int, str]) -> str:
    """One update in a few lines for the terminal; `names` of categories by their ids."""
    lines = [f"update {update.number}: {came_text(update)}"]
    went = sorted(update.placed.items(), key=lambda entry: -entry[1])
    if went:
        to = [f"{escaped(_name(number, names))} {count:,}" for number, count in went[:MOST_NAMED]]
        more = f" and {plural(len(went) - MOST_NAMED, 'more category')}" if len(went) > MOST_NAMED else ""
        lines.append(f"  placed    {plural(sum(update.placed.values()), 'image')}: {', '.join(to)}{more}")
    for opened in update.opened:
        by = "by its label" if opened.by_label else "by the rule"
        lines.append(f"  opened    {escaped(opened.name)} (#{opened.id}) with {plural(opened.size, 'image')}, {by}")
    if update.pool:
        lines.append(f"  waiting   {plural(update.pool, 'image')} not placed yet: like no category")
    if update.evidence is not None:
        lines.append(f"  the rule  {update.evidence.sentence}")
    if update.better_model:
        lines.append(f"  model     {update.better_model}")
    return "\n".join(lines)


def came_text(update: UpdateRecord) -> str:
    """What came, in words."""
    counts = {
        "new": update.came, "changed": len(update.changed), "gone": len(update.gone),
        "renamed or moved": len(update.renamed), "there already": len(update.copies), "unreadable": update.skipped,
    }  # fmt: skip
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return said or "other labels"


def note_text(update: UpdateRecord) -> str:
    """What the labelled images said about the rule, and what became of the model."""
    rule = "" if update.evidence is None else update.evidence.sentence
    return "; ".join(filter(None, [rule, update.better_model and f"a better model, {update.better_model}"]))


def history_text(history: UpdateHistory) -> str:
    """All updates of a run, one line each."""
    if not history.updates:
        return "no update yet: newkinds update RUN [MORE …]"
    rows = [
        [
            str(update.number), update.at.replace("T", " ")[:16], came_text(update), f"{sum(update.placed.values()):,}",
            ", ".join(f"{escaped(opened.name)} (#{opened.id})" for opened in update.opened) or "–", f"{update.pool:,}",
            "undone" if update.undone else "",
        ]
        for update in history.updates
    ]  # fmt: skip
    return text_table(["update", "when (UTC)", "what came", "placed", "opened", "waiting", ""], rows)


def _name(number: str, names: Mapping[int, str]) -> str:
    return "(junk)" if number == str(JUNK) else names.get(int(number), f"#{number}")
