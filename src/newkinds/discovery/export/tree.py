"""Ward's tree of the categories: Newick for programs that draw trees, and JSON.

https://phylipweb.github.io/phylip/newicktree.html"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import NewkindsError
from ...files import json_text, write_whole
from ...text import plural, spelt
from ..categories import Discovery
from ..tree import MOST_JOINED, Tree
from .base import EXPORTS


@EXPORTS.register("tree")
def to_tree(discovery: Discovery, target: Path) -> str:
    """Which categories are similar: tree.nwk (Newick) and tree.json, with groups of similar ones."""
    tree = discovery.tree()
    if len(tree.ids) < 2:
        few = sum(category.size > 0 for category in discovery.categories) < 2
        why = "fewer than 2 categories have images" if few else f"there are more than {MOST_JOINED:,} categories"
        raise NewkindsError(f"{discovery.run} has no tree: {why}. Nothing was exported.")
    categories = {category.id: category for category in discovery.categories}
    groups = tree.groups()
    group_of = {number: place for place, group in enumerate(groups, start=1) for number in group}
    nodes = []
    for node in tree.nodes():
        entry: dict[str, Any] = {"node": node.number, "parent": node.parent, "height": round(node.height, 6)}
        if node.category is not None:
            category = categories[node.category]
            entry |= {
                "category_id": category.id, "category": spelt(category.name), "is_new": category.is_new,
                "images": category.size, "group": group_of[category.id],
            }  # fmt: skip
        nodes.append(entry)
    content = {"order": tree.order, "groups": groups, "nodes": nodes}
    target.mkdir()
    write_whole(target / "tree.json", json_text(content, "tree.json", indent=1, ensure_ascii=False) + "\n")
    names = {number: spelt(category.name) for number, category in categories.items()}
    write_whole(target / "tree.nwk", newick(tree, names) + "\n")
    return f"{plural(len(tree.ids), 'category')} in {plural(len(groups), 'group')}"


def newick(tree: Tree, names: Mapping[int, str]) -> str:
    """The tree with a name at each leaf; the way between two leaves is as long as the height at which they are joined.

    >>> newick(Tree([3, 5], np.array([[0, 1, 0.8, 2]])), {3: "cat", 5: "it's"})
    "('cat':0.4,'it''s':0.4);"
    """
    nodes = list(tree.nodes())
    texts: list[str] = []  # of each node, without its distance to its parent
    inside: dict[int, list[str]] = {}  # what is joined at a node
    for node in nodes:
        quoted = "" if node.category is None else "'" + names[node.category].replace("'", "''") + "'"
        texts.append(quoted or f"({','.join(inside.pop(node.number))})")
        if node.parent is not None:
            length = (nodes[node.parent].height - node.height) / 2
            inside.setdefault(node.parent, []).append(f"{texts[-1]}:{length:.6g}")
    return f"{texts[-1]};"
