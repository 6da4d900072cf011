"""The rooms and what is in them: data goes one way, and modules with a short name are found by it."""

import importlib
import pkgutil
from graphlib import TopologicalSorter
from types import ModuleType

import pytest


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count, and those for types alone: import-linter looks at siblings only."""
    grimp = pytest.importorskip("grimp", reason="installed with import-linter, which the extra dev has")
    graph = grimp.build_graph("newkinds")
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()


@pytest.mark.parametrize(
    ("short", "home"),
    [
        ("count", "cluster.count"), ("diagnose", "evaluation.diagnose"), ("heads", "methods.heads"),
        ("losses", "methods.losses"), ("metrics", "cluster.metrics"), ("organizers", "encoders.organizers"),
    ],
)  # fmt: skip
def test_short_names_give_what_their_modules_do(short: str, home: str) -> None:
    given, real = (importlib.import_module(f"newkinds.{name}") for name in (short, home))
    assert (given.__all__, given.__doc__) == (real.__all__, real.__doc__)
    inside = [module.name for module in pkgutil.iter_modules(getattr(real, "__path__", []))]
    assert inside == [module.name for module in pkgutil.iter_modules(getattr(given, "__path__", []))]
    assert public(given) == public(real)
    for name in inside:
        assert public(importlib.import_module(f"newkinds.{short}.{name}")) == public(getattr(real, name)), name


def public(module: ModuleType) -> dict[str, object]:
    """What `from module import *` gives, the very same objects."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return {name: getattr(module, name) for name in names}
