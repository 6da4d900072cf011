"""The verbs that correct what was found. They need neither torch nor numpy (except for `name --suggest`, `next` and
`split`), so that they answer at once."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .. import process
from ..errors import NewkindsError, nearest
from ..files import json_text
from ..text import escaped, plural, show, text_table
from .options import JSON, RUN, argument, choices, switch, verb
from .parsing import whole_number

if TYPE_CHECKING:
    from ..discovery.categories import Discovery

PREVIEWED = 8  # images of each part that a preview of a split names
CATEGORIES = argument("categories", "CATEGORY", "names of categories, or #ID", nargs="+")
CATEGORY = argument("category", "CATEGORY", "name of a category, or #ID")
WHAT = argument(
    "what", "IMAGE|CATEGORY", "images, as assignments.csv names them or as files, or whole categories", nargs="+"
)


def _read(run: str) -> "Discovery":
    from ..discovery.categories import Discovery

    return Discovery.read(run)


@verb(
    RUN,
    argument("given", "OLD=NEW", "a category's name (or #ID) and the one that it gets", nargs="*"),
    switch("--suggest", "suggest", "propose names for the new categories, with the evidence; rename nothing"),
    argument("--only", "CATEGORY", "propose for this one (name or #ID); may be repeated", action="append"),
    argument("--words", "FILE", "words to propose, one per line (default: everyday words)"),
    argument("--clip", "NAME|FILE", "CLIP model: NAME:TAG or NAME of open_clip, a weight file, a folder"),
    argument("--weights", "FILE", "its weights: .safetensors or .pth"),
    switch("--download", "download", "allow the weights to be downloaded"),
    argument("--per-category", "N", "typical images to look at in each category (default: 16)", type=whole_number),
    argument("--top", "N", "proposals to show for each category (default: 3)", type=whole_number),
    argument("--template", "TEXT", "sentence with {} for the word; may be repeated", action="append"),
    argument("--images", "FOLDER", "where the images are now, if they have moved"),
    JSON, *choices("device"),
)  # fmt: skip
def _name(run: str, given: Sequence[str] = (), suggest: bool = False, as_json: bool = False, **chosen: Any) -> None:
    """Give categories names, or propose some; without any, list the categories.

    newkinds name runs/photos new-06="shiba inu"      give a new category a name
    newkinds name runs/photos new-06=shiba '#31=corgi'
    newkinds name runs/photos                         list all categories with their ids
    newkinds name runs/photos --suggest --words dogs.txt --clip ViT-B-32 --weights clip.safetensors
    """
    if suggest and given:
        raise NewkindsError(f"--suggest renames nothing: leave out {given[0]}, or leave out --suggest.")
    if suggest:
        process.prepare()  # images are opened
        _suggest(run, as_json, **chosen)
        return
    if chosen:
        raise NewkindsError(f"--{next(iter(chosen)).replace('_', '-')} is for --suggest: add that, or leave it out.")
    found = _read(run)
    pairs = [_pair(pair, set(found.corrections().names.values())) for pair in given]
    for old, _ in pairs if len(pairs) > 1 else []:
        found.category(old)  # all must exist before the first is renamed
    for old, new in pairs:
        show(found.rename(old, new))
    if not given and as_json:
        show(json_text([category._asdict() for category in found.categories], "the list", indent=1))
    elif not given:
        rows = [[c.name, f"{c.id}", "new" if c.is_new else "known", f"{c.size}"] for c in found.categories]
        show(text_table(["category", "id", "kind", "images"], rows))


def _suggest(
    run: str, as_json: bool, only: Sequence[str] | None = None, template: Sequence[str] | None = None, **chosen: Any
) -> None:
    from ..discovery.suggest import suggest_names  # torch is needed here only

    proposed = suggest_names(run, categories=only, templates=template, **chosen)
    show(json_text(proposed.as_json(), "the proposals", indent=1) if as_json else proposed.text())


def _pair(text: str, names: set[str]) -> tuple[str, str]:
    """OLD=NEW, where either may hold a "=": OLD ends where it is the name of a category."""
    places = [place for place, letter in enumerate(text) if letter == "="]
    if not places:
        raise NewkindsError(f'{text}: write OLD=NEW, e.g. new-06="shiba inu".')
    place = next((place for place in places if text[:place] in names), places[0])
    return text[:place], text[place + 1 :]


@verb(RUN, CATEGORIES, argument("--into", "CATEGORY", "the one that stays (default: the known one, else the first)"))
def _merge(run: str, categories: Sequence[str], into: str | None = None) -> None:
    """Make several categories one.

    newkinds merge runs/photos new-06 new-09          make two categories one
    newkinds merge runs/photos new-06 new-09 --into corgi
    """
    show(_read(run).merge(categories, into))


@verb(
    RUN, CATEGORY,
    argument("--into", "N", "how many parts (default: as many as its images seem to be)", type=whole_number),
    switch("--preview", "preview", "show the parts, and change nothing"),
)  # fmt: skip
def _split(run: str, category: str, into: int | None = None, preview: bool = False) -> None:
    """Split a category by clustering its images again.

    newkinds split runs/photos new-03                 split a category in two or more
    newkinds split runs/photos new-03 --into 3
    newkinds split runs/photos new-03 --preview
    """
    found = _read(run)
    if preview:
        show(_preview(found, found.parts(category, into)))
    else:
        show(found.split(category, into))


def _preview(found: "Discovery", parts: Sequence[Sequence[str]]) -> str:
    """Each part with its size, its mean confidence and the names of some images, the most certain ones first."""
    sure = {member.path: member.confidence for member in found.members}
    total = sum(map(len, parts))
    lines = []
    for number, part in enumerate(parts, start=1):
        typical = sorted(part, key=lambda path: -sure[path])
        mean = sum(sure[path] for path in part) / len(part)
        share = 100 * len(part) / total
        lines.append(f"part {number}: {plural(len(part), 'image')} ({share:.0f} %), mean confidence {mean:.2f}")
        lines.extend(f"    {escaped(path)}" for path in typical[:PREVIEWED])
        if len(part) > PREVIEWED:
            lines.append(f"    … and {len(part) - PREVIEWED:,} more")
    return "\n".join(lines)


@verb(
    RUN, argument("images", "IMAGE", "images, as assignments.csv names them or as files", nargs="+"),
    argument("--to", "CATEGORY", "where they belong: a name, or #ID", required=True),
    switch("--new", "new", "make a new category of that name"),
)  # fmt: skip
def _move(run: str, images: Sequence[str], to: str, new: bool = False) -> None:
    """Put images into another category.

    newkinds move runs/photos unlabeled/17.jpg --to corgi    put an image where it belongs
    newkinds move runs/photos 17.jpg 18.jpg --to "welsh corgi" --new
    """
    show(_read(run).move(images, to, new=new))


@verb(RUN, WHAT)
def _junk(run: str, what: Sequence[str]) -> None:
    """Make images junk, or a whole category: they belong to no category. Their files stay.

    newkinds junk runs/photos unlabeled/blurred.jpg   an image is junk
    newkinds junk runs/photos new-11                  a category is junk, with all its images
    """
    found = _read(run)
    _do_to_all(found.junk, found, what)


@verb(RUN, WHAT)
def _accept(run: str, what: Sequence[str]) -> None:
    """Accept images where they are, or all images of a category: newkinds refine takes them as labels.

    newkinds accept runs/photos new-06                accept a category
    newkinds accept runs/photos unlabeled/17.jpg
    """
    found = _read(run)
    _do_to_all(found.accept, found, what)


def _do_to_all(edit: Callable[..., str], found: "Discovery", what: Sequence[str]) -> None:
    """Edit the images and categories that were named, all of which must exist before anything is changed."""
    names = set(found.corrections().names.values())
    categories = [entry for entry in what if entry in names or (entry[:1] == "#" and entry[1:].isdecimal())]
    for category in categories:
        found.category(category)
    images = [_image(found, entry) for entry in what if entry not in categories]
    for category in categories:
        show(edit(category=category))
    if images:
        show(edit(images))


def _image(found: "Discovery", entry: str) -> str:
    """The path of an image, or why it is none: a category may have been meant."""
    try:
        return found.path_of(entry)
    except NewkindsError as error:
        state = found.corrections()
        if entry in state.earlier_names:
            found.category(entry)  # which says what became of it
        hint = nearest(entry, state.names.values())
        raise NewkindsError(f"{error}{hint and f'{hint[:-1]}, a category?'}") from None


@verb(
    RUN,
    argument("--number", "N", "how many images (default: 5)", type=whole_number),
    argument("--only", "KIND", "questions of one kind: name, typical, doubt, label, merge or pool"),
    JSON,
)  # fmt: skip
def _next(run: str, as_json: bool = False, **chosen: Any) -> None:
    """Show which images to look at next, each with its reason and the commands that answer.

    newkinds next runs/photos                         what to look at next, and why
    newkinds next runs/photos --number 5 --only name
    newkinds next runs/photos --json > questions.json
    """
    from ..discovery.questions import next_questions

    questions = next_questions(_read(run), **chosen)
    if as_json:
        listed = [{**asdict(q), "answers": [a._asdict() for a in q.answers(run)]} for q in questions]
        show(json_text(listed, "the questions", indent=1))
    elif not questions:
        show("there is nothing to ask: people have decided about all images that this could be about")
    for number, question in enumerate([] if as_json else questions, start=1):
        shown = " and ".join(escaped(path) for path in (question.path, question.other_path) if path is not None)
        show(f"{number:>3}  {shown}\n     {question.asks} {question.says_why}")
        answers = question.answers(run)
        width = max(len(escaped(answer.meaning)) for answer in answers) + 1
        for answer in answers:
            show(f"       {escaped(answer.meaning) + ':':<{width}} {shlex.join(answer.command)}")


@verb(RUN)
def _undo(run: str) -> None:
    """Take the last correction back; repeat it to go further back.

    newkinds undo runs/photos                         take the last correction back
    """
    show(_read(run).undo())


@verb(RUN)
def _redo(run: str) -> None:
    """Make the correction again that was undone last.

    newkinds redo runs/photos                         make it again
    """
    show(_read(run).redo())


@verb(RUN, JSON)
def _log(run: str, as_json: bool = False) -> None:
    """Show all corrections of a run.

    newkinds log runs/photos                          what was corrected, and what was undone
    newkinds log runs/photos --json > edits.json
    """
    from ..runs.directory import RunDirectory

    history = _read(run).log()
    if as_json:
        show(json_text([{**edit, "in_force": in_force} for edit, in_force in history], "the log", indent=1))
    elif not history:
        show("nothing was corrected yet")
    else:
        for edit, in_force in history:
            says = escaped(str(edit.get("says", edit["edit"])))
            show(f"{edit['n']:>4}  {edit.get('at', '')}  {says}{'' if in_force else '  (undone)'}")
    earlier = RunDirectory(run).earlier_results()
    if earlier and not as_json:
        show(f"of the result before this one, from which decisions were carried over: newkinds log {earlier[-1]}")
