"""Which images of a run a person should look at next, and why: so that kinds get names, and what is wrong is found.

All is read from the run and its log of edits, hence fits what people have decided until now; torch is not needed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import NewkindsError
from ..runs.directory import RunDirectory
from ..runs.records import Findings
from ..text import escaped, plural
from .categories import Discovery
from .doubts import doubts_of
from .edits import JUNK, POOL
from .kinds import Category, is_numbered
from .relations import may_be_one, mixing_of, rivals_of
from .split import MOST_LINKED, read_embedding, unit_means

Kind = Literal["name", "typical", "doubt", "label", "merge", "pool"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Rows = NDArray[np.int64]  # numbers of images

NUMBER = 5  # of questions, if nobody says: as many as are answered before the screen is full
OTHERS_EVERY = 5  # one question in so many is of `_OTHERS`, in turn; all others are names, then typical images
SHARPNESS = 3  # power of a cosine: how much faster images stand for near ones than for far ones
MOST_COMPARED = 300  # images of a category that are compared with each other; of more, an even sample
SHORTLIST = 0.25  # of a category: among so many of its most doubtful images, those unlike each other are asked about
FEWEST_LISTED = 8  # images on such a list, if the category has so many


class Reply(NamedTuple):
    """What a person may say, and the command that says it."""

    meaning: str
    command: list[str]


@dataclass(frozen=True)
class Question:
    """An image, or one of each of two categories, that a person should look at."""

    path: str
    kind: Kind
    asks: str  # the question, in plain words
    reason: str  # why it is asked
    category_id: int  # where the image is now; negative: in no category
    other_id: int | None = None  # the category where it may belong, or with which its own may be one
    other_path: str | None = None  # of two categories that may be one: an image of the other
    other_name: str | None = None  # of the other category

    @property
    def says_why(self) -> str:
        """The reason as a sentence."""
        return f"{self.reason[:1].upper()}{self.reason[1:]}."

    @property
    def paths(self) -> list[str]:
        """The images that it shows."""
        return [self.path] if self.other_path is None else [self.path, self.other_path]

    def answers(self, run: str) -> list[Reply]:
        """The commands that answer it; what is to be filled in is written in capitals.

        >>> question.answers("runs/photos")[0]
        Reply(meaning='this is its name', command=['newkinds', 'name', 'runs/photos', '#31=NAME'])
        """
        where, other = f"#{self.category_id}", f"#{self.other_id}"
        image = escaped(self.path)  # as tables spell it: no command obeys what a file is called
        move = ["newkinds", "move", run, image, "--to"]
        accept = Reply("it is right there", ["newkinds", "accept", run, image])
        likely = [] if self.other_id is None else [Reply(f"it is '{self.other_name}'", [*move, other])]
        elsewhere = Reply("it is another one", [*move, "CATEGORY"])
        unknown = Reply("it is a new kind", [*move, "NAME", "--new"])
        if self.kind == "name":
            return [Reply("this is its name", ["newkinds", "name", run, f"{where}=NAME"]), accept, elsewhere]
        if self.kind == "merge":
            apart = ["newkinds", "accept", run, image, escaped(self.other_path or "")]
            return [Reply("they are", ["newkinds", "merge", run, where, other]), Reply("they are not", apart)]
        if self.kind == "pool":
            return [*likely, elsewhere, unknown, Reply("it is nothing", ["newkinds", "junk", run, image])]
        return [accept, *likely, elsewhere, unknown]


def next_questions(
    found: Discovery, embedding: NDArray[np.float32] | None = None, number: int = NUMBER, only: Kind | None = None
) -> list[Question]:
    """The `number` images that are worth most to look at now, in this order; fewer if there is no more to ask.

    First a clear member of each new category that nobody has named, the largest category first; then typical images:
    always the one that stands for most images unlike all that people have seen. Every fifth question is of another
    kind: images between two categories, labels that the images contradict, categories that may be one, images that are
    in no category yet. What people have decided is not asked again.

    `embedding`: unit rows (n, P) of the run's images; by default they are read from the run. `only`: one kind alone.

    >>> found = newkinds.Discovery.read("runs/photos")
    >>> for question in newkinds.next_questions(found, number=5):
    ...     print(question.path, question.asks, question.reason)
    """
    if only is not None and only not in KINDS:
        raise NewkindsError(f"there are no questions of the kind '{only}': choose one of {', '.join(KINDS)}.")
    if number < 1:
        raise NewkindsError(f"{number} questions cannot be asked: say 1 or more.")
    rows = read_embedding(RunDirectory(found.run), len(found.members)) if embedding is None else embedding
    view = _View(found, rows)
    if only is not None:
        asked = chain(*(ask(view) for ask in _SOURCES[only]))
        return _mix((question for question in asked if question.kind == only), iter(()), number)
    begin = int(view.decided.sum()) // OTHERS_EVERY % len(_OTHERS)  # who asks for five at a time gets all kinds
    others = [ask(view) for ask in (*_OTHERS[begin:], *_OTHERS[:begin])]
    return _mix(chain(_ask_names(view), _ask_typical(view)), _in_turn(others), number)


def _mix(first: Iterator[Question], others: Iterator[Question], number: int) -> list[Question]:
    """Every so many-th question from the others; no image is asked about twice."""
    made: list[Question] = []
    shown: set[str] = set()
    while len(made) < number:
        in_order = (others, first) if len(made) % OTHERS_EVERY == OTHERS_EVERY - 1 else (first, others)
        question = next(chain(*in_order), None)
        if question is None:
            break
        if not shown & set(question.paths):
            made.append(question)
            shown.update(question.paths)
    return made


def _in_turn(queues: list[Iterator[Question]]) -> Iterator[Question]:
    """One question of each queue, over and over, until all are empty."""
    while queues:
        for queue in list(queues):
            question = next(queue, None)
            if question is None:
                queues.remove(queue)
            else:
                yield question


class _View:
    """A run as it is now: what lies where, and what people have said."""

    def __init__(self, found: Discovery, rows: NDArray[np.float32]) -> None:
        members = found.members
        n = len(members)
        self.found, self.rows = found, rows
        self.paths = [member.path for member in members]
        self.of = np.fromiter((member.category_id for member in members), np.int64, n)  # (n,)
        self.decided = np.fromiter((bool(member.status) for member in members), bool, n)
        labelled = np.fromiter((member.given_label is not None for member in members), bool, n)
        self.is_open = ~self.decided & ~labelled  # nobody has said anything about it
        self.seen = (self.decided | labelled) & (self.of != JUNK)
        self.unlike = np.fromiter((member.is_unlike for member in members), bool, n) & self.is_open
        self.category = {category.id: category for category in found.categories}
        self.rivals = rivals_of(rows, self.of)
        order = np.argsort(self.of, kind="stable")
        ids, first = np.unique(self.of[order], return_index=True)
        self.inside: dict[int, Rows] = dict(zip(ids.tolist(), np.split(order, first[1:]), strict=True))
        self.left: dict[int, set[int]] = {}  # category → those to which people have moved images of it
        state = found.corrections()
        for row in np.flatnonzero(self.decided & (self.of >= 0)).tolist():
            origin = state.now(found.found_members[row].category_id)
            if origin != self.of[row]:
                self.left.setdefault(origin, set()).add(int(self.of[row]))

    def name(self, category: int) -> str:
        return f"'{self.called(category)}'"

    def called(self, category: int) -> str:
        return self.category[category].name

    def is_known(self, category: Category) -> bool:
        """Whether people know what it is: by a label, by a name that they gave, or by an image that they decided."""
        inside = self.inside.get(category.id, np.zeros(0, np.int64))
        return not (category.is_new and is_numbered(category.name)) or bool(self.decided[inside].any())

    def open_in(self, category: int) -> Rows:
        inside = self.inside.get(category, np.zeros(0, np.int64))
        return inside[self.is_open[inside]]


# -- the kinds of questions, each worth most first -------------------------------------------------------------------


def _ask_names(view: _View) -> Iterator[Question]:
    """A clear member of each category that nobody has named, the largest category first. If people have moved what they
    were shown to another category, the two may be one: that is asked then. Of mixtures, from which images were moved to
    several ones, little is to be learnt: they come last."""
    unnamed = [c for c in view.found.new if not view.is_known(c) and len(view.open_in(c.id))]
    for category in sorted(unnamed, key=lambda category: len(view.left.get(category.id, ())) > 1):
        towards = view.left.get(category.id, set())
        if len(towards) == 1:
            other = view.category[next(iter(towards))]
            why = f"what you saw of {view.name(category.id)} is {view.name(other.id)} now: perhaps all of it is"
            if (pair := _pair(view, category, other, why)) is not None:
                yield pair
                continue
        rows = view.open_in(category.id)
        row = int(rows[view.rivals.margin[rows].argmax()])
        reason = f"a clear one of the {plural(category.size, 'image')} of {view.name(category.id)}, which nobody named"
        yield Question(view.paths[row], "name", "What is this?", reason, category.id)


def _ask_typical(view: _View) -> Iterator[Question]:
    """Images that stand for many that are unlike all that people have seen, of any category that has a name.

    An image stands for another of its category by the cube of their cosine. What an image adds is the sum, over the
    category's open images, of how much better it stands for them than the best that people have seen there.
    """
    seen = {number: inside[view.seen[inside]].tolist() for number, inside in view.inside.items() if number >= 0}
    best = [(-gain, row, stands_for) for number in seen for gain, row, stands_for in _most_typical(view, number, seen)]
    heapify(best)
    while best:
        _, row, stands_for = heappop(best)
        number = int(view.of[row])
        seen[number].append(row)
        for gain, other, so_many in _most_typical(view, number, seen):
            heappush(best, (-gain, other, so_many))
        name = view.name(number)
        if stands_for == 1:
            reason = f"nothing in {name} that you have labelled or decided looks like it"
        else:
            unlike_seen = "which look more like it than like any that you have labelled or decided"
            reason = f"it stands for {plural(stands_for, 'image')} of {name}, {unlike_seen}"
        yield Question(view.paths[row], "typical", f"Is this {name}?", reason, number)


def _most_typical(view: _View, category: int, seen: dict[int, list[int]]) -> list[tuple[float, int, int]]:
    """What the most typical open image of a category adds to those that were seen, its row, and for how many images it
    stands; nothing if all were seen."""
    listed = np.setdiff1d(view.open_in(category), seen[category])
    step = max(1, -(-len(listed) // MOST_COMPARED))
    listed = listed[::step]
    if not len(listed):
        return []
    vectors, known = view.rows[listed], view.rows[seen[category]]
    before = np.maximum((vectors @ known.T).max(axis=1, initial=0), 0) ** SHARPNESS  # (m,)
    better = np.maximum(vectors @ vectors.T, 0) ** SHARPNESS - before[:, None]  # (m, m): for whom, and who
    gain = np.maximum(better, 0).sum(axis=0) * step
    place = int(gain.argmax())
    return [(float(gain[place]), int(listed[place]), step * max(1, int((better[:, place] > 0).sum())))]


def _ask_doubts(view: _View) -> Iterator[Question]:
    """Images between two categories: of every category in turn, the one with the most doubtful image first."""
    margin = view.rivals.margin
    listed = {number: rows for number in view.category if len(rows := view.open_in(number))}
    order = sorted(listed, key=lambda number: float(margin[listed[number]].min()))
    return _in_turn([_doubts_in(view, number, listed[number]) for number in order])


def _doubts_in(view: _View, category: int, rows: Rows) -> Iterator[Question]:
    for row in _spread(view, category, rows):
        other = int(view.rivals.other_id[row])
        if other >= 0:
            own, next_best = view.name(category), view.name(other)
            is_elsewhere = view.rivals.margin[row] < 0
            reason = (
                f"more like {next_best} than like {own}, where it is"
                if is_elsewhere
                else (f"almost as much like {next_best} as like {own}, where it is")
            )
            yield Question(
                view.paths[row], "doubt", f"Is this {own} or {next_best}?", reason, category, other,
                other_name=view.called(other),
            )  # fmt: skip


def _spread(view: _View, category: int, rows: Rows) -> Iterator[int]:
    """The images of a category, the most doubtful quarter first; among these, always the one that is farthest from
    what people have seen of the category and from those that came before, so that no copies are asked about."""
    rows = rows[np.argsort(view.rivals.margin[rows], kind="stable")]
    inside = view.inside[category]
    seen = view.rows[inside[view.seen[inside]]]  # (m, P)
    while len(rows):
        size = max(FEWEST_LISTED, int(SHORTLIST * len(rows)))
        listed, rows = rows[:size], rows[size:]
        vectors = view.rows[listed]
        like = (vectors @ seen.T).max(axis=1, initial=-1)  # (listed,) the largest cosine with what was seen
        for _ in listed:
            place = int(like.argmin())
            yield int(listed[place])
            like = np.maximum(like, vectors @ vectors[place])
            like[place] = np.inf
        seen = np.concatenate([seen, vectors])


def _ask_labels(view: _View) -> Iterator[Question]:
    """Labelled images that lie nearer to another category, if the model or a check has doubts as well."""
    findings = Findings.read(RunDirectory(view.found.run))
    suspected = {finding.path for finding in findings if finding.check == "wrong label"} | doubts_of(view.found).keys()
    listed = [row for row, path in enumerate(view.paths) if path in suspected and not view.decided[row]]
    rows = np.array(listed, np.int64)
    rows = rows[(view.of[rows] >= 0) & (view.rivals.margin[rows] < 0)]
    for row in rows[np.argsort(view.rivals.margin[rows], kind="stable")].tolist():
        own, other = int(view.of[row]), int(view.rivals.other_id[row])
        reason = f"labelled {view.name(own)}, but it looks more like {view.name(other)}"
        yield Question(
            view.paths[row], "label", "Is the label right?", reason, own, other, other_name=view.called(other)
        )


def _ask_merges(view: _View) -> Iterator[Question]:
    """Pairs of categories that mix like one, unless people know both of them."""
    filled = [c for c in view.found.categories if c.size]
    filled.sort(key=lambda category: category.is_new)  # known ones first, as `may_be_one` has them
    position = {category.id: place for place, category in enumerate(filled)}
    placed = np.flatnonzero(view.of >= 0)
    of = np.array([position[number] for number in view.of[placed].tolist()], np.int64)
    known = sum(not category.is_new for category in filled)
    for pair in may_be_one(mixing_of(view.rows[placed], of, len(filled)), known):
        two = filled[pair.first], filled[pair.second]
        if all(view.is_known(category) for category in two):
            continue
        names = f"{view.name(two[0].id)} and {view.name(two[1].id)}"
        question = _pair(view, *two, f"{names} mix like one category: the border between them may be arbitrary")
        if question is not None:
            yield question


def _pair(view: _View, one: Category, other: Category, reason: str) -> Question | None:
    """Whether two categories are one, shown by an image of each; None if one of them has nothing to show."""
    rows = _towards(view, one.id, other.id), _towards(view, other.id, one.id)
    if rows[0] is None or rows[1] is None:
        return None
    paths = view.paths[rows[0]], view.paths[rows[1]]
    return Question(paths[0], "merge", "Are these two of one kind?", reason, one.id, other.id, paths[1], other.name)


def _towards(view: _View, category: int, other: int) -> int | None:
    """Of the clearer half of a category's open images the one that is most like another category: an image at the very
    border would say little about either."""
    rows = view.open_in(category)
    if not len(rows):
        return None
    clear = rows[np.argsort(-view.rivals.margin[rows], kind="stable")[: (len(rows) + 1) // 2]]
    centre = unit_means(view.rows, [view.inside[other].tolist()])[0]
    return int(clear[(view.rows[clear] @ centre).argmax()])


def _ask_pool(view: _View) -> Iterator[Question]:
    """One of each group of images that are in no category yet, or unlike every category; the largest group first."""
    from scipy.cluster.hierarchy import fcluster, linkage

    rows = np.flatnonzero(view.is_open & ((view.of == POOL) | view.unlike))
    rows = rows[:: max(1, -(-len(rows) // MOST_LINKED))]
    if not len(rows):
        return
    placed = view.of >= 0
    usual = float(np.median(view.rivals.own[placed])) ** 2 if placed.any() else 0.5  # cosine of two of one category
    group = np.ones(1, np.int64)
    if len(rows) > 1:
        group = fcluster(linkage(view.rows[rows], "average", metric="cosine"), 1 - usual, "distance")
    sizes = np.bincount(group)
    for number in np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)].tolist():
        inside = rows[group == number]
        centre = unit_means(view.rows, [inside.tolist()])[0]
        row = int(inside[(view.rows[inside] @ centre).argmax()])
        where, other = int(view.of[row]), int(view.rivals.other_id[row])
        nowhere = "is in no category yet" if where < 0 else "is unlike every category"
        alike = "" if len(inside) == 1 else f", and {plural(len(inside) - 1, 'more image')} like it"
        likely = where if where >= 0 else other if other >= 0 else None
        name = None if likely is None else view.called(likely)
        yield Question(
            view.paths[row], "pool", "Where does this belong?", f"it {nowhere}{alike}", where, likely, other_name=name
        )


_OTHERS = (_ask_doubts, _ask_labels, _ask_merges, _ask_pool)
_SOURCES: dict[Kind, tuple[Callable[[_View], Iterator[Question]], ...]] = {
    "name": (_ask_names,), "typical": (_ask_typical,), "doubt": (_ask_doubts,), "label": (_ask_labels,),
    "merge": (_ask_names, _ask_merges), "pool": (_ask_pool,),
}  # fmt: skip
