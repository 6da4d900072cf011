"""The covering sets cover, and what they leave out is still there."""

from __future__ import annotations

from itertools import product

import pytest

from covering import some_of, spread


def test_every_row_meets_every_family_and_every_member_occurs() -> None:
    rows, families = list(range(9)), [list("abcdefg"), list("uvwxyz"), ["-"]]
    pairs = spread(rows, families, each=2)
    for row in rows:
        met = [member for place, member in pairs if place == row]
        assert [len(set(met) & set(family)) for family in families] == [2, 2, 1]
    assert {member for _, member in pairs} == {member for family in families for member in family}
    assert len(pairs) == len(set(pairs))


def test_a_product_keeps_all_its_cases_and_marks_those_that_are_not_chosen() -> None:
    cases = some_of(product("ab", [1, 2]), [("a", 1), ("b", 2)])
    assert [case.values for case in cases] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert [bool(case.marks) for case in cases] == [False, True, True, False]
    with pytest.raises(AssertionError):
        some_of(product("ab", [1, 2]), [("c", 1)])
