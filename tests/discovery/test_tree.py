"""The tree of categories: joins by Ward's rule, similar ones together, groups that a look takes in, Newick and JSON."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import newkinds
from discovered import DIM, discovered
from newkinds import Discovery, NewkindsError
from newkinds.discovery.report import render
from newkinds.discovery.report.build import page_of
from newkinds.discovery.split import read_embedding
from newkinds.discovery.studio.state import Studio
from newkinds.discovery.tree import MOST_ORDERED, centres_of, grow_tree
from newkinds.runs.directory import RunDirectory
from pictured import drawn


def families(count: int, inside: int, seed: int = 0) -> dict[int, np.ndarray]:
    """Centres of categories, of which `inside` after each other are similar; ids have gaps."""
    generator = np.random.default_rng(seed)
    rows = np.repeat(generator.normal(size=(count, DIM)), inside, axis=0) + 0.1 * generator.normal(
        size=(count * inside, DIM)
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return {3 * place + 1: row.astype(np.float32) for place, row in enumerate(rows)}


def increase(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """By how much the sum of squared distances to the means grows if two sets become one."""

    def spread(rows: list[np.ndarray]) -> float:
        return float(np.square(np.stack(rows) - np.mean(rows, axis=0)).sum())

    return spread(first + second) - spread(first) - spread(second)


def test_each_join_is_the_one_that_widens_least() -> None:
    centres = families(3, 3)
    tree = grow_tree(centres)
    below = {number: [centres[category]] for number, category in enumerate(tree.ids)}
    children: dict[int, list[int]] = {}
    for node in tree.nodes():
        if node.parent is not None:
            children.setdefault(node.parent, []).append(node.number)
    for node in list(tree.nodes())[len(tree.ids) :]:
        first, second = children[node.number]
        least = min(increase(below[a], below[b]) for a in below for b in below if a < b)
        assert increase(below[first], below[second]) == pytest.approx(least, rel=1e-4)
        assert node.height == pytest.approx(np.sqrt(2 * least), rel=1e-4)
        below[node.number] = below.pop(first) + below.pop(second)


@pytest.mark.parametrize("ordered", [True, False], ids=["few", "many"])
def test_similar_categories_are_together_in_groups_of_at_most_so_many(ordered: bool) -> None:
    count = 5 if ordered else MOST_ORDERED // 3 + 1
    centres = families(count, 3)
    tree = grow_tree(centres)
    order = tree.order
    assert sorted(order) == sorted(centres)
    for groups in (tree.groups(), tree.groups(4)):
        assert [number for group in groups for number in group] == order
    assert max(map(len, tree.groups())) <= 8
    if ordered:
        wanted = {frozenset(1 + 3 * (3 * family + place) for place in range(3)) for family in range(count)}
        assert set(map(frozenset, tree.groups(4))) == wanted
        assert set(tree.neighbours(1, 2)) == {4, 7}
        assert set(tree.neighbours(1, 100)) == set(centres) - {1}


def test_an_order_of_leaves_has_the_shortest_way_among_those_of_the_tree() -> None:
    centres = families(2, 4, seed=3)
    tree = grow_tree(centres)
    below: list[list[list[int]]] = [[[number]] for number in tree.ids]  # every order that turning branches gives
    for first, second in tree.joins[:, :2].astype(int):
        below.append([a + b for x in below[first] for y in below[second] for a, b in ((x, y), (y, x))])

    def way(order: list[int]) -> float:
        return sum(float(np.linalg.norm(centres[a] - centres[b])) for a, b in pairwise(order))

    assert way(tree.order) == pytest.approx(min(map(way, below[-1])), rel=1e-5)


def test_few_categories_are_no_trouble() -> None:
    one = {5: np.eye(3, dtype=np.float32)[0]}
    assert (grow_tree({}).order, grow_tree({}).groups()) == ([], [])
    assert (grow_tree(one).order, grow_tree(one).groups(), grow_tree(one).neighbours(5, 3)) == ([5], [[5]], [])
    assert centres_of(np.eye(2, dtype=np.float32), np.array([-1, -2])) == {}


def test_the_tree_is_of_what_people_see(tmp_path: Path) -> None:
    run = discovered(tmp_path / "run")
    found = Discovery.read(run)
    found.merge(["new-1", "new-2"])
    found.junk(category="new-4")
    found.move([found.members[0].path], "owl", new=True)
    assert sorted(found.tree().ids) == [0, 1, 2, 4, 6], "merged and junk are gone, one that was made is there"
    rows = read_embedding(RunDirectory(run), len(found.members))
    merged = rows[[place for place, member in enumerate(found.members) if member.category_id == 2]].mean(axis=0)
    of = np.array([member.category_id for member in found.members])
    assert np.allclose(centres_of(rows, of)[2], merged / np.linalg.norm(merged), atol=1e-6)


def test_one_category_alone_cannot_be_merged_but_its_neighbours_are_named(tmp_path: Path) -> None:
    found = Discovery.read(discovered(tmp_path / "run"))
    first, second, third = found.tree().neighbours(2, 3)
    names = {category.id: category.name for category in found.categories}
    with pytest.raises(NewkindsError, match="at least two") as refused:
        found.merge(["new-1"])
    near = ", ".join(f"'{names[number]}' (#{number})" for number in (first, second, third))
    assert str(refused.value).endswith(f"'new-1' is next to {near}.")
    (tmp_path / "run" / "embedding.safetensors").unlink()
    with pytest.raises(NewkindsError, match=r"to merge\.$"):
        found.merge(["new-1"])


def parse(newick: str) -> tuple[list[str], dict[frozenset[str], float]]:
    """The names in order, and the length of the way between any two: a parser of its own."""
    tokens = re.findall(r"'(?:[^']|'')*'|[(),;]|:[^(),;]+", newick)
    stack: list[list[dict[str, float]]] = [[]]  # of each open bracket: its parts, as name → way to the top of the part
    ways: dict[frozenset[str], float] = {}
    names: list[str] = []
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            parts = stack.pop()
            for place, part in enumerate(parts):
                for other in parts[place + 1 :]:
                    ways |= {frozenset((a, b)): x + y for a, x in part.items() for b, y in other.items()}
            stack[-1].append({name: way for part in parts for name, way in part.items()})
        elif token[0] == ":":
            stack[-1][-1] = {name: way + float(token[1:]) for name, way in stack[-1][-1].items()}
        elif token[0] == "'":
            names.append(token[1:-1].replace("''", "'"))
            stack[-1].append({names[-1]: 0.0})
    assert tokens[-1] == ";"
    return names, ways


def test_a_single_group_is_not_several(tmp_path: Path) -> None:
    run = discovered(tmp_path / "run", new=2)
    assert newkinds.export(run, "tree", tmp_path / "out") == "4 categories in 1 group"


def test_an_exported_tree_says_who_is_how_far_from_whom(tmp_path: Path) -> None:
    run = discovered(tmp_path / "run", new=10)
    found = Discovery.read(run)
    found.rename("new-01", "it's (a), 'b';:")
    found.rename("new-02", "כלב")
    assert newkinds.export(run, "tree", tmp_path / "out") == "12 categories in 2 groups"
    tree, names = found.tree(), {category.id: category.name for category in found.categories}
    listed, ways = parse((tmp_path / "out" / "tree.nwk").read_text("utf-8"))
    assert sorted(listed) == sorted(names.values())
    content = json.loads((tmp_path / "out" / "tree.json").read_text("utf-8"))
    assert (content["order"], content["groups"]) == (tree.order, tree.groups())
    parent, height = ({entry["node"]: entry[key] for entry in content["nodes"]} for key in ("parent", "height"))
    leaves = {entry["category"]: entry for entry in content["nodes"] if "category" in entry}
    assert {name: entry["category_id"] for name, entry in leaves.items()} == {v: k for k, v in names.items()}
    assert all(leaves[names[number]]["group"] == 1 for number in tree.groups()[0])
    for pair, way in ways.items():
        first, second = ([leaves[name]["node"]] for name in pair)
        for path in (first, second):
            while parent[path[-1]] is not None:
                path.append(parent[path[-1]])
        assert way == pytest.approx(next(height[node] for node in first if node in second), abs=1e-4)


def test_there_is_no_tree_of_one_category(tmp_path: Path) -> None:
    run = discovered(tmp_path / "run", {"cat": 3, "dog": 3}, new=0)
    Discovery.read(run).merge(["cat", "dog"])
    with pytest.raises(NewkindsError, match="fewer than 2 categories"):
        newkinds.export(run, "tree", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_studio_knows_groups_of_similar_categories_as_they_are_now(tmp_path: Path) -> None:
    studio = Studio(discovered(tmp_path / "run", new=10))
    assert studio.state()["groups"] == [], "a window need not wait for them"
    studio.mark()
    found = Discovery.read(tmp_path / "run")
    assert studio.state()["groups"] == found.tree().groups()
    found.merge(["new-01", "new-02"])
    studio.mark()
    assert [number for group in studio.state()["groups"] for number in group] == found.tree().order


def test_the_page_shows_the_groups_and_can_sort_by_the_tree(tmp_path: Path) -> None:
    run = drawn(tmp_path, {"cat": 3, "dog": 3}, new=8, per_category=3)
    page, found = page_of(RunDirectory(run)), Discovery.read(run)
    names = {category.id: category.name for category in found.categories}
    assert page.groups == [[names[number] for number in group] for group in found.tree().groups()]
    html = render(page)
    section = html.partition('<section id="groups"')[2].partition("</section>")[0]
    assert re.findall(r'<bdi title="([^"]+)">', section) == [name for group in page.groups for name in group]
    name_at = dict(re.findall(r'data-place="(\d+)">\s+<header>\s+<h3[^>]*>.*?<bdi title="([^"]+)"', html))
    assert [name_at[f"{place}"] for place in range(10)] == [names[number] for number in found.tree().order]
    found.merge([2, 3, 4, 5])
    assert page_of(RunDirectory(run)).groups == [], "seven categories are one group, which says nothing"
