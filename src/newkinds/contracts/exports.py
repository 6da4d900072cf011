"""What every format of export promises."""

from pathlib import Path

from ..data import load_table
from ..discovery.categories import Discovery
from ..discovery.export import EXPORTS
from ..verbs.discover import discover
from .base import AskedPart, contract, require
from .small import CREATURES

ODD_NAME = '<b>"new" & odd, ½/'


def found_in(folder: Path) -> Discovery:
    """Some drawn creatures in files, what was found in them, and corrections: a name, a move, junk."""
    run = folder / "found"
    if not (run / "assignments.csv").is_file():
        table = load_table(CREATURES)
        for row, (path, label) in enumerate(zip(table.paths, table.labels, strict=True)):
            file = folder / "photos" / (label or "unlabeled") / path
            file.parent.mkdir(parents=True, exist_ok=True)
            table.open(row).save(file)
        settings = {"k": 4, "backbone": {"name": "tiny"}, "train": {"epochs": 0, "workers": 0, "device": "cpu"}}
        found = discover(folder / "photos", run, page=False, method="simgcd", settings=settings)
        found.rename(found.categories[-1].id, ODD_NAME)
        found.move([found.members[0].path], ODD_NAME)
        found.junk([found.members[1].path])
    return Discovery.read(run)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@contract("export")
def it_makes_its_target_alone(part: AskedPart) -> None:
    """It makes its target and nothing else, says what it wrote, and leaves the run as it is."""
    found, outside = found_in(part.folder), part.folder / f"exported-{part.name}"
    outside.mkdir(exist_ok=True)
    target = outside / "target"
    before = files_below(found.run), files_below(part.folder / "photos")
    said = EXPORTS[part.name](found, target)
    require(isinstance(said, str) and bool(said), f"it returns {said!r}, not a line that says what was written.")
    require(target.exists(), "its target was not written.")
    others = sorted(path.name for path in outside.iterdir() if path != target)
    require(not others, f"beside its target it leaves {others}.")
    after = files_below(found.run), files_below(part.folder / "photos")
    changed = {
        name
        for then, now in zip(before, after, strict=True)
        for name in {*then, *now}
        if then.get(name) != now.get(name)
    }
    require(not changed, f"it changes {sorted(changed)[:3]} of the run or among the images.")


@contract("export")
def the_same_twice(part: AskedPart) -> str | None:
    """What was found is exported to the same bytes twice."""
    found = found_in(part.folder)
    targets = [part.folder / f"again-{number}-{part.name}" / "target" for number in (1, 2)]
    for target in targets:
        target.parent.mkdir(exist_ok=True)
        EXPORTS[part.name](found, target)
    one, other = ({str(f.relative_to(t.parent)): f.read_bytes() for f in files_of(t)} for t in targets)
    differing = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    return f"{differing[:3]} differ" if differing else None


def files_of(target: Path) -> list[Path]:
    return [target] if target.is_file() else [file for file in target.rglob("*") if file.is_file()]
