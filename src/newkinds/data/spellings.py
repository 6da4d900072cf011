"""What people write as a label: words that mean "none", and two spellings of one class.

Neither is guessed silently: what is taken as no label is said, and labels that hardly differ are refused."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from ..console import warn
from ..errors import NewkindsError

UNLABELLED = ("unlabeled", "unlabelled")  # as the documentation spells it: nothing is said about it
NO_LABEL = {"", "-1"}  # likewise, in a table

# what programs and people write where they have nothing to say
NOTHING = {
    "-", "--", "---", ".", "..", "?", "??", "???", "*", "#", "#n/a", "<na>", "<none>", "(none)", "[none]", "n/a", "na",
    "nan", "nat", "nil", "none", "null", "undefined", "-1.0", "-1.", "no label", "nolabel", "without label",
    "not labeled", "not labelled", "not yet labeled", "not yet labelled",
}  # fmt: skip
# what is everything but a class, as the name of a folder too
NO_CLASS = {
    "unknown", "unknowns", "unk", "unsorted", "not sorted", "to sort", "uncategorized", "uncategorised", "unclassified",
    "unassigned", "unidentified", "untagged", "unannotated", "unnamed", "untitled", "untitled folder", "new folder",
    "misc", "miscellaneous", "other", "others", "rest", "the rest", "remaining", "various", "mixed", "todo", "to do",
    "tbd", "inbox", "no class", "no category", "without class",
    "unlike every category", "not placed yet",  # folders that an export makes
}  # fmt: skip
# beside "unlabeled" in the name of a folder these say nothing about what is in it
BESIDE = {
    "a", "all", "also", "archive", "backup", "bak", "batch", "copy", "data", "dataset", "export", "extra", "file",
    "files", "final", "folder", "from", "image", "images", "img", "imgs", "kopie", "more", "my", "new", "of", "old",
    "older", "part", "photo", "photos", "picture", "pictures", "pics", "raw", "rest", "resized", "set", "still", "temp",
    "test", "the", "tmp", "train", "v", "val", "yet",
}  # fmt: skip
SHOWN = 3  # examples in a message


def means_no_label(text: str) -> bool:
    """Whether a cell of a table says that there is no label.

    >>> means_no_label("NaN"), means_no_label("Nandu")
    (True, False)
    """
    plain = _plain(text)
    return plain in NO_LABEL or plain in NOTHING or plain in NO_CLASS or is_unlabelled(text)


def is_no_class(folder: str) -> bool:
    """Whether the name of a folder says that what is in it has no label.

    >>> is_no_class("Unlabeled (1)"), is_no_class("misc"), is_no_class("unlabeled bottles")
    (True, True, False)
    """
    if _plain(folder) in NOTHING | NO_LABEL or is_unlabelled(folder):
        return True
    words = re.sub(r"[\W\d_]+", " ", _plain(folder)).split()  # without numbers and signs: misc_2, Unknown (1)
    return " ".join(words) in NO_CLASS or " ".join(word for word in words if word not in BESIDE) in NO_CLASS


def is_unlabelled(text: str) -> bool:
    """Whether a name is "unlabeled", also misspelt, numbered or copied."""
    words = _words(text)
    return any(map(_is_unlabelled_word, words)) and all(_is_unlabelled_word(word) or word in BESIDE for word in words)


def mentions_unlabelled(text: str) -> bool:
    """Whether "unlabeled" is one of the words of a name."""
    return any(map(_is_unlabelled_word, _words(text)))


def _words(text: str) -> list[str]:
    """The words of a name, without numbers and signs; un-labeled is one."""
    return re.findall(r"[^\W\d_]+", re.sub(r"\bun[\W_]+(?=lab)", "un", _plain(text)))


def _is_unlabelled_word(word: str) -> bool:
    """Whether a word is "unlabeled" or hardly another."""
    if word in UNLABELLED:
        return True
    if word in ("labeled", "labelled", "relabeled", "relabelled", "enlabeled"):
        return False
    most = 2 if word.startswith("un") and "lab" in word else 1
    return any(_edits(word, wanted, most) <= most for wanted in (*UNLABELLED, "unlabel", "unlabels"))


def _edits(one: str, other: str, most: int) -> int:
    """How many letters must be added, left out or changed to make one word of the other; more than `most` is not
    counted."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, wanted in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != wanted)))
        before = now
    return before[-1]


def classes_of(texts: Sequence[str | None], where: str, what: str = "label") -> list[str | None]:
    """Classes as a table names them; None where it says, in whatever words, that there is none. These are shown.

    `where`: the table, for messages.
    """
    stripped = [None if text is None else text.strip() for text in texts]
    negative = {text for text in stripped if text and re.fullmatch(r"-\d+(\.0*)?", text)}
    if {text for text in negative if float(text) != -1} and any(float(text) == -1 for text in negative):
        others = sorted(text for text in negative if float(text) != -1)
        raise NewkindsError(
            f"{where}: does the {what} '-1' mean none, or is it a class like '{others[0]}'? Leave it empty where there "
            "is none, or call the class otherwise."
        )
    found = [None if text is None or means_no_label(text) else text for text in stripped]
    words = Counter(text for text, kept in zip(stripped, found, strict=True) if text and kept is None)
    taken = [f"'{word}' ({times:,})" for word, times in words.most_common() if word not in NO_LABEL]
    if taken:
        named = ", ".join(taken[:SHOWN]) + (f" and {len(taken) - SHOWN} more" if len(taken) > SHOWN else "")
        warn(f"{where}: as the {what}, {named} is taken as none. If it is a class, give it another name.")
    return found


# -- two spellings of one class --------------------------------------------------------------------------------------


def refuse_two_spellings(classes: Iterable[str | None], where: str) -> None:
    """Refuse names of classes that are probably one class: Cat and cat, a space too many, 01 and 1, é in two forms.

    Single letters may be classes of their own in both cases (A and a), and are only mentioned.
    """
    by_key: dict[str, list[str]] = {}
    counts = Counter(name for name in classes if name is not None)
    for name in counts:
        by_key.setdefault(spelling_key(name), []).append(name)
    for names in by_key.values():
        if len(names) < 2:
            continue
        written = " and ".join(
            f"{name!a} ({counts[name]:,})" if _is_odd(name) else f"'{name}' ({counts[name]:,})"
            for name in names[:SHOWN]
        )
        if all(len(name) == 1 for name in names):
            warn(f"{where}: {written} are taken as different classes.")
            continue
        raise NewkindsError(
            f"{where}: {written} differ only in {_difference(names)}. If they are one class, write them alike; if not, "
            "give one of them another name."
        )


def spelling_key(name: str) -> str:
    """Equal for two spellings of one name.

    >>> spelling_key(" Golden_Retriever 01") == spelling_key("golden retriever 1")
    True
    """
    text = _plain(name)
    text = re.sub(r"(?<=\w)[\s_\-]+(?=\w)", " ", text)
    text = re.sub(r"^([+-]?\d+)\.0+$", r"\1", text)  # a whole number that went through a spreadsheet
    return re.sub(r"(?<![\d.])0+(?=\d)", "", text)


def _plain(text: str) -> str:
    """Without what cannot be seen or is not meant: capitals, spaces around and twice, forms of Unicode."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = unicodedata.normalize("NFKC", text)
    text = "".join(" " if char.isspace() else char for char in text if unicodedata.category(char) != "Cf")
    text = text.translate({0x2019: "'", 0x2018: "'", 0x00B4: "'", 0x0060: "'", 0x2010: "-", 0x2011: "-", 0x2013: "-"})
    return " ".join(text.split())


def _is_odd(name: str) -> bool:
    """Whether a name does not show how it is spelt."""
    return name != " ".join(name.split()) or unicodedata.normalize("NFKC", name) != name or not name.isprintable()


def _difference(names: Sequence[str]) -> str:
    """In a word or two, what two spellings differ in."""
    one, other = names[0], names[1]
    composed = [unicodedata.normalize("NFKC", name) for name in (one, other)]
    if composed[0] == composed[1]:
        return "the Unicode form of a letter"
    if one.casefold() == other.casefold():
        return "capitals"
    if re.sub(r"[\s_\-]", "", one) == re.sub(r"[\s_\-]", "", other):
        return "spaces or dashes"
    if re.search(r"\d", one):
        return "how a number is written"
    return "capitals, spaces or signs"
