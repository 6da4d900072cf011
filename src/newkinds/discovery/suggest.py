"""Names for new categories, proposed from a list of words by a model that puts images and words into one space. Nothing
is renamed: each proposal stands beside its evidence, and people decide."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..console import track, warn
from ..data.images import BadImage
from ..data.table import Table
from ..encoders.clip import TwoTowers, load_clip
from ..errors import NewkindsError, Skipped
from ..runs.directory import RunDirectory
from ..text import escaped, plural, text_table
from ..training.device import choose_device
from .categories import Discovery
from .edits import usable_name
from .kinds import Category, Member, typical_first
from .originals import originals

TEMPLATES = ("a photo of a {}.", "a close-up photo of a {}.", "a photo of the {} outdoors.", "a picture of one {}.")
EVERYDAY_WORDS = Path(__file__).with_name("words.txt")
AT_ONCE = 256  # words
MEANING = (
    "similarity: mean cosine of a category's most typical images and the word. It puts words in order, and is no "
    "probability.\nwords: ahead of the word that comes next. images: those to which no other word is nearer.\n"
    "categories: ahead of the other category that is nearest to the word; below 0, the word fits that one better."
)


@dataclass(frozen=True)
class Proposal:
    """A word for a category, and what speaks for it."""

    word: str
    similarity: float  # mean cosine of the category's images and the word: no probability
    margin: float  # ahead of the word that comes next
    agree: int  # images to which no other word is nearer
    lead: float | None  # ahead of the other category that is nearest to the word; None: there is no other
    rival: str | None  # which category that is


@dataclass(frozen=True)
class Suggestion:
    """What a category may be called."""

    category: Category
    images: int  # that were looked at
    proposals: list[Proposal]  # the best first; none if no image could be read
    shared_with: list[Category]  # other categories with the same first proposal: are they the same kind?
    namesake: Category | None  # another category that is called like the first proposal already

    @property
    def is_vague(self) -> bool:
        """Whether the first proposal comes first for several known classes too, which are certainly different kinds."""
        return sum(not other.is_new for other in self.shared_with) > 1


@dataclass(frozen=True)
class SuggestionCheck:
    """How far to trust it: the same question about known classes, whose names are right."""

    known: int  # classes that were looked at
    in_list: int  # of these, how many have a name that is in the list
    right: int  # of those, how many have it as first proposal
    wrong: list[tuple[str, str]]  # class and first proposal of the others


@dataclass(frozen=True)
class Suggestions:
    """Proposals for the new categories of a run; iterate over it for one `Suggestion` after the other.

    >>> for one in newkinds.suggest_names("runs/photos", clip="ViT-B-32:laion2b_s34b_b79k"):
    ...     print(one.category.name, [proposal.word for proposal in one.proposals])
    """

    run: Path
    model: str
    words: int
    of: list[Suggestion]
    check: SuggestionCheck
    skipped: list[Skipped]  # typical images that are gone or cannot be read

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)

    def accept(self, suggestion: Suggestion) -> list[str] | None:
        """The command that gives a category its first proposal; None if it cannot have it, has it already, or if the
        proposal is vague."""
        if not suggestion.proposals or suggestion.namesake is not None or suggestion.is_vague:
            return None
        word = suggestion.proposals[0].word
        same = word == suggestion.category.name
        return None if same else ["newkinds", "name", str(self.run), f"#{suggestion.category.id}={word}"]

    def merge(self, suggestion: Suggestion) -> list[str] | None:
        """The command that makes a category one with those that have the same first proposal, or its name; None if
        there are none, or if the proposal is vague."""
        named = [] if suggestion.namesake is None else [suggestion.namesake]
        others = [] if suggestion.is_vague else [*suggestion.shared_with, *named]
        numbers = sorted({suggestion.category.id, *(other.id for other in others)})
        return ["newkinds", "merge", str(self.run), *(f"#{number}" for number in numbers)] if others else None

    def as_json(self) -> dict[str, Any]:
        """All of it, to be written as JSON."""
        return {
            "model": self.model, "words": self.words, "check": asdict(self.check),
            "skipped": [image._asdict() for image in self.skipped],
            "suggestions": [
                {
                    "id": one.category.id, "name": one.category.name, "size": one.category.size, "images": one.images,
                    "proposals": [asdict(proposal) for proposal in one.proposals],
                    "shared_with": [other.id for other in one.shared_with],
                    "namesake": None if one.namesake is None else one.namesake.id,
                    "accept": self.accept(one), "merge": self.merge(one),
                }
                for one in self
            ],
        }  # fmt: skip

    def text(self) -> str:
        """A table of the proposals with their evidence, what is odd about them, and how to accept one."""
        rows = [row for one in self for row in _rows(one)]
        columns = ["category", "proposal", "similarity", "words", "images", "categories"]
        surest_first = sorted(
            (one for one in self if one.proposals), key=lambda one: one.proposals[0].agree / one.images, reverse=True
        )
        commands: dict[str, str] = {}  # a word is for one category
        for one in surest_first:
            if (command := self.accept(one)) is not None:
                commands.setdefault(one.proposals[0].word, shlex.join(command))
        how = "Nothing was renamed. To accept a proposal (those on which most images agree come first):"
        parts = [
            text_table(columns, rows),
            MEANING,
            "\n".join(self._oddities()),
            f"by {self.model}, {self.words:,} words. {_trust(self.check)}",
            "\n  ".join([how, *commands.values()]) if commands else "Nothing was renamed.",
        ]
        return "\n\n".join(filter(None, parts))

    def _oddities(self) -> Iterator[str]:
        said, vague = set[tuple[str, ...]](), set[str]()
        for one in self:
            if not one.proposals:
                yield f"{_called(one.category)} has no image that can be read, so nothing is proposed for it."
                continue
            best, command = one.proposals[0], self.merge(one)
            if one.is_vague and best.word not in vague:
                vague.add(best.word)
                known = sum(not other.is_new for other in one.shared_with)
                yield f"'{best.word}' comes first for {known} known classes too: it does not tell kinds apart here."
            elif command is None and not one.is_vague and (best.lead or 0) < 0:
                yield f"'{best.word}' fits {escaped(str(best.rival))} better than {_called(one.category)}."
            if command is None or tuple(command) in said:
                continue
            said.add(tuple(command))
            if one.namesake is not None:
                yield f"'{best.word}' is another category's name already. If {_called(one.category)} belongs to it:"
            else:
                names = [_called(category) for category in (one.category, *one.shared_with)]
                yield f"'{best.word}' comes first for {' and '.join(names)}. If they are the same kind:"
            yield f"  {shlex.join(command)}"
        if self.skipped:
            first = self.skipped[0]
            yield f"{plural(len(self.skipped), 'image')} skipped; the first is {first.path}: {first.reason}"


def suggest_names(
    run: str | Path,
    words: str | Path | Sequence[str] | None = None,
    clip: str | Path | TwoTowers | None = None,
    *,
    weights: str | Path | None = None,
    download: bool = False,
    categories: Sequence[str | int] | None = None,
    per_category: int = 16,
    top: int = 3,
    templates: Sequence[str] | None = None,
    images: str | Path | None = None,
    device: str = "auto",
) -> Suggestions:
    """Propose names for the new categories of a run; nothing is renamed.

    words: a file with one word (or a few words) per line, or a list; by default some everyday words.
    clip, weights, download: see `newkinds.encoders.clip.load_clip`; or any model of your own with two towers.
    categories: names or ids of those to name, by default all new ones.
    per_category: how many of its most typical images are looked at.
    templates: sentences with {} for the word, which is the mean of them all; by default a few about photographs.
    images: the folder in which the images are now, if they have moved.

    >>> found = suggest_names("runs/photos", ["corgi", "shiba inu"], "ViT-B-32", weights="clip.safetensors")
    >>> found.of[0].proposals[0].word
    """
    if per_category < 1 or top < 1:
        raise NewkindsError("look at one image of each category at least, and show one proposal at least.")
    found, listed = Discovery.read(run), read_words(words)
    asked = found.new if categories is None else [found.category(which) for which in categories]
    if not asked:
        raise NewkindsError(f"{run} has no new category with images: there is nothing to name.")
    templates = TEMPLATES if templates is None else templates
    refuse_templates(templates)
    table = originals(RunDirectory(run), found.members, images)
    if clip is None or isinstance(clip, (str, Path)):
        clip = load_clip(clip, weights, download, choose_device(device))
    live = [category for category in found.categories if category.size]
    rows, skipped = _image_rows(live, found.members, table, clip, per_category)
    if not any(len(some) for some in rows.values()):
        raise NewkindsError(f"no image of {run} can be read; the first is {skipped[0].path}: {skipped[0].reason}.")
    seen = _compare(live, rows, listed, _word_rows(listed, templates, clip), top)
    first = {number: proposals[0].word for number, proposals in seen.items()}
    suggestions = []
    for category in asked:
        word = first.get(category.id)
        shared = [other for other in live if other != category and word is not None and first.get(other.id) == word]
        namesake = next((other for other in found.categories if other.name == word and other.id != category.id), None)
        looked_at = len(rows.get(category.id, ()))
        suggestions.append(Suggestion(category, looked_at, seen.get(category.id, []), shared, namesake))
    return Suggestions(Path(run), clip.name, len(listed), suggestions, _check(live, first, listed), skipped)


def read_words(words: str | Path | Sequence[str] | None = None) -> list[str]:
    """The words of a list or of a UTF-8 file with one per line, each of which can be a category's name; each counts
    once, in whatever case.

    >>> read_words(["corgi", "shiba inu", "Corgi"])
    ['corgi', 'shiba inu']
    """
    file = EVERYDAY_WORDS if words is None else words
    where = f"in {file}, line" if isinstance(file, (str, Path)) else "in the list, word"
    lines = _lines(Path(file)) if isinstance(file, (str, Path)) else file
    kept: dict[str, str] = {}
    repeated = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            word = usable_name(line)
        except NewkindsError as error:
            raise NewkindsError(f"{where} {number}: {error}") from None
        repeated += word.casefold() in kept
        kept.setdefault(word.casefold(), word)
    if len(kept) < 2:
        held = "only one word" if kept else "no word"
        raise NewkindsError(f"there is {held} {where.split(',')[0]}: there must be two at least to choose from.")
    if repeated:
        warn(f"{repeated:,} word(s) {where.split(',')[0]} are there more than once: they count once.")
    return list(kept.values())


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise NewkindsError(f"cannot read the words in {file}: {error.strerror or error}.") from None
    except ValueError:
        raise NewkindsError(f"{file} is not a text file in UTF-8: save it as such, with one word per line.") from None


def refuse_templates(templates: Sequence[str]) -> None:
    """A template must say where the word goes."""
    for template in templates:
        if "{}" not in template:
            raise NewkindsError(f"the template '{template}' has no {{}} for the word: write e.g. 'a photo of a {{}}.'")
    if not templates:
        raise NewkindsError("there is no template: write e.g. 'a photo of a {}.'")


def _word_rows(words: Sequence[str], templates: Sequence[str], model: TwoTowers) -> NDArray[np.float32]:
    """(V, D) unit rows: each word is the mean of its sentences."""
    parts = []
    chunks = [words[start : start + AT_ONCE] for start in range(0, len(words), AT_ONCE)]
    for some in track(chunks, "reading words", total=len(chunks)):
        # the word is put in as it is: whatever it holds, it is no format
        rows = model.text_rows([template.replace("{}", word) for word in some for template in templates])
        parts.append(rows.reshape(len(some), len(templates), -1).mean(axis=1))  # (some, D)
    mean = np.concatenate(parts)
    return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)


def _image_rows(
    categories: Sequence[Category], members: Sequence[Member], table: Table, model: TwoTowers, count: int
) -> tuple[dict[int, NDArray[np.float32]], list[Skipped]]:
    """Unit rows (n, D) of the `count` most typical images of each category that can be read, and those that cannot."""
    row_of = {member.path: row for row, member in enumerate(members)}
    inside: dict[int, list[Member]] = {category.id: [] for category in categories}
    for member in members:
        if member.category_id in inside:  # junk is in none
            inside[member.category_id].append(member)
    rows, skipped = {}, []
    for category in track(categories, "looking at images", total=len(categories)):
        opened: list[Image.Image] = []
        for member in typical_first(inside[category.id]):
            if len(opened) == count:
                break
            try:
                opened.append(table.open(row_of[member.path]))
            except BadImage as error:
                skipped.append(Skipped(member.path, str(error)))
        if opened:
            rows[category.id] = model.image_rows(opened)
    return rows, skipped


def _compare(
    categories: Sequence[Category], rows: dict[int, NDArray[np.float32]], words: Sequence[str],
    word_rows: NDArray[np.float32], top: int,
) -> dict[int, list[Proposal]]:  # fmt: skip
    """The best words of each category whose images could be read, from unit rows of images and of words (V, D)."""
    looked_at = [category for category in categories if category.id in rows]
    # the mean of cosines is the cosine-like product with the mean row
    centres = np.stack([rows[category.id].mean(axis=0) for category in looked_at])  # (K, D)
    made = {}
    for place, category in enumerate(looked_at):
        nearest = Counter((rows[category.id] @ word_rows.T).argmax(axis=1).tolist())  # (n, V) → the word of each image
        mean = word_rows @ centres[place]  # (V,)
        order = np.argsort(-mean, kind="stable")[: top + 1]
        proposals = []
        for this, following in zip(order[:top], [*order[1:], None], strict=False):
            of_all = centres @ word_rows[this]  # (K,) of this word and each category
            of_all[place] = -np.inf
            rival = int(of_all.argmax()) if len(looked_at) > 1 else None
            proposals.append(
                Proposal(
                    words[this], float(mean[this]), 0.0 if following is None else float(mean[this] - mean[following]),
                    nearest[int(this)], None if rival is None else float(mean[this] - of_all[rival]),
                    None if rival is None else looked_at[rival].name,
                )
            )  # fmt: skip
        made[category.id] = proposals
    return made


def _check(categories: Sequence[Category], first: dict[int, str], words: Sequence[str]) -> SuggestionCheck:
    known = [category for category in categories if not category.is_new and category.id in first]
    listed = {_plain(word) for word in words}
    answers = [(c.name, first[c.id]) for c in known if _plain(c.name) in listed]
    wrong = [(name, word) for name, word in answers if _plain(name) != _plain(word)]
    return SuggestionCheck(len(known), len(answers), len(answers) - len(wrong), wrong)


def _plain(name: str) -> str:
    """A class's name as people would say it: "017.Shiba_inu" is "shiba inu"."""
    return " ".join(re.sub(r"[_\-\s]+", " ", re.sub(r"^\d+[._\-\s]+", "", name)).split()).casefold()


def _trust(check: SuggestionCheck) -> str:
    if not check.in_list:
        return (
            f"None of the {check.known} known classes has a name in the list, so nothing shows how far to trust this: "
            "add their names to the list."
        )
    wrong = ", ".join(f"{escaped(name)} → {word}" for name, word in check.wrong[:5])
    others = f" ({wrong}{', …' if len(check.wrong) > 5 else ''})" if wrong else ""
    classes, are = ("class" if check.in_list == 1 else "classes"), ("is" if check.right == 1 else "are")
    return (
        f"Of the {check.in_list} known {classes} with a name in the list, {check.right} {are} named rightly{others}: "
        "trust the proposals no further than that."
    )


def _rows(suggestion: Suggestion) -> list[list[str]]:
    rows = []
    for place, proposal in enumerate(suggestion.proposals):
        agree = f"{proposal.agree} of {suggestion.images}"
        lead = "–" if proposal.lead is None else f"{round(proposal.lead, 3) + 0.0:+.3f}"  # + 0.0: no minus before zero
        evidence = [f"{proposal.similarity:.3f}", f"{proposal.margin:+.3f}", agree, lead]
        rows.append(["" if place else _called(suggestion.category), proposal.word, *evidence])
    return rows or [[_called(suggestion.category), "–", "–", "–", "–", "–"]]


def _called(category: Category) -> str:
    return f"{escaped(category.name)} (#{category.id})"
