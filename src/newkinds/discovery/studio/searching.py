"""What people type to find something: a part of a file's or a category's name, `#31`, `unlike`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..kinds import Category, Member

UNLIKE = "unlike"


@dataclass(frozen=True)
class Query:
    """What all images found must be: of one of these ids, if any; unlike every category; with all these words in the
    path or in the name of the category."""

    words: tuple[str, ...]
    ids: frozenset[int]
    unlike: bool

    @classmethod
    def of(cls, text: str) -> "Query":
        r"""What a text asks for; in "quotes", `#31` and `unlike` are words as well.

        >>> Query.of('#31 unlike beach')
        Query(words=('beach',), ids=frozenset({31}), unlike=True)
        """
        words, ids, unlike = list[str](), set[int](), False
        for quoted, plain in re.findall(r'"([^"]+)"|(\S+)', text):
            if re.fullmatch(r"#[0-9]{1,9}", plain):
                ids.add(int(plain[1:]))
            elif plain.casefold() == UNLIKE:
                unlike = True
            else:
                words.append((quoted or plain).casefold())
        return cls(tuple(words), frozenset(ids), unlike)

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.ids or self.unlike)

    def categories(self, categories: Sequence[Category]) -> list[int]:
        """The ids of the categories that are meant: by their id, or by their name."""
        named = [category.id for category in categories if self.words and self._fits(category.name.casefold())]
        if not self.ids:
            return named
        meant = [category.id for category in categories if category.id in self.ids]
        return meant if not self.words else [number for number in meant if number in named]

    def rows(self, members: Sequence[Member], lowered: Sequence[str]) -> list[int]:
        """The images that fit; `lowered` are their paths in small letters."""
        if self.is_empty:
            return []
        names = {member.category_id: member.category.casefold() for member in members}
        return [
            row
            for row, member in enumerate(members)
            if (not self.ids or member.category_id in self.ids)
            and (not self.unlike or member.is_unlike)
            and self._fits(lowered[row], names[member.category_id])
        ]

    def _fits(self, *texts: str) -> bool:
        return all(any(word in text for text in texts) for word in self.words)
