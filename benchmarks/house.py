"""Lines, modules and imports of a tree of the package, by room: the state before and after come from one command.

    python benchmarks/house.py                       # this tree
    python benchmarks/house.py ../before . --json    # several trees side by side

A room is a sub-package of `newkinds`; the modules that lie directly in it are the hall. Imports inside functions count
too. A cycle is a group of modules that import one another in a circle; a package and its own modules are none.
"""

import argparse
import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PACKAGE = "newkinds"
HALL = "(hall)"


@dataclass
class Room:
    """What one room holds."""

    modules: int = 0
    lines: int = 0
    code: int = 0  # lines without blank ones, comments and docstrings
    inside: int = 0
    below: int = 0
    cycles: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, default=[Path(__file__).parents[1]])
    parser.add_argument("--json", action="store_true", help="numbers for another program")
    given = parser.parse_args()
    found = {str(tree): rooms_of(tree / "src" / PACKAGE) for tree in given.trees}
    if given.json:
        print(json.dumps({tree: {name: asdict(room) for name, room in rooms.items()} for tree, rooms in found.items()}))
        return
    for tree, rooms in found.items():
        print(f"\n{tree}\n| room | modules | lines | of code | imports inside | of other rooms | cycles |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name, room in [*sorted(rooms.items()), ("all", together(rooms))]:
            print(f"| {name} |" + "".join(f" {value:,} |" for value in asdict(room).values()))


def together(rooms: dict[str, Room]) -> Room:
    sums = {name: sum(getattr(room, name) for room in rooms.values()) for name in Room.__dataclass_fields__}
    return Room(**sums)


def rooms_of(package: Path) -> dict[str, Room]:
    """The rooms of a package by name."""
    files = {module_name(package, file): file for file in sorted(package.rglob("*.py"))}
    rooms: dict[str, Room] = {}
    imports: dict[str, set[str]] = {}
    for module, file in files.items():
        text = file.read_text()
        tree = ast.parse(text)
        room = rooms.setdefault(room_of(module, files), Room())
        room.modules += 1
        room.lines += len(text.splitlines())
        room.code += lines_of_code(text, tree)
        imports[module] = set(imports_of(tree, module, files))
        same = {other for other in imports[module] if room_of(other, files) == room_of(module, files)}
        room.inside += len(same)
        room.below += len(imports[module] - same)
    for circle in circles(imports):
        rooms[room_of(circle[0], files)].cycles += 1
    return rooms


def module_name(package: Path, file: Path) -> str:
    parts = [PACKAGE, *file.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str, files: dict[str, Path]) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return HALL
    is_room = files[".".join(parts[:2])].name == "__init__.py"
    return parts[1] if is_room else HALL


def lines_of_code(text: str, tree: ast.Module) -> int:
    documented: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documented.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in documented for number, line in lines
    )


def imports_of(tree: ast.Module, module: str, files: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a module imports, inside functions too."""
    is_package = files[module].name == "__init__.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                up = node.level - is_package
                base = ".".join([*(parts[:-up] if up else parts), *filter(None, [node.module])])
            named = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base for alias in node.names]
        else:
            continue
        yield from (name for name in named if name in files and name != module)


def circles(imported: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import one another in a circle; a package and its own modules do not count."""
    graph = {
        module: {other for other in others if not other.startswith(f"{module}.") and not module.startswith(f"{other}.")}
        for module, others in imported.items()
    }
    reached = {module: reach(graph, module) for module in graph}
    found: list[list[str]] = []
    placed: set[str] = set()
    for module in graph:
        group = sorted(other for other in reached[module] if module in reached[other])
        if module in reached[module] and module not in placed:
            found.append(group)
            placed.update(group)
    return found


def reach(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for other in graph.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


if __name__ == "__main__":
    main()
