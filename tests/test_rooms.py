"""The rooms and what is in them: data goes one way."""

from graphlib import TopologicalSorter

import pytest

grimp = pytest.importorskip("grimp", reason="installed with import-linter, which the extra dev has")


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count, and those for types alone: import-linter looks at siblings only."""
    graph = grimp.build_graph("newkinds")
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()
