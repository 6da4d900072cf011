"""Which classes of a benchmark are known and which are new: lists bundled with the package."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from ...errors import NewkindsError

FOLDER = Path(__file__).with_name("class_lists")


@dataclass(frozen=True)
class ClassList:
    """Class numbers, counted from 0 in the data set's own order; the order within the lists is the published one."""

    known: list[int]
    new: list[int]  # hard, then medium, then easy ones if the list grades them
    class_names: list[str]  # empty unless the benchmark is a choice among more classes
    label: str  # name and short checksum, to be shown with results


def read_class_list(name: str) -> ClassList:
    """The list of a benchmark; one that was changed since it was shipped is refused."""
    file = FOLDER / f"{name}.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    content = {key: stored[key] for key in ("known", "new", "class_names") if key in stored}
    checksum = hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
    if checksum != stored["sha256"]:
        raise NewkindsError(
            f"{file} was changed: its content has the checksum {checksum[:16]}, not {stored['sha256'][:16]}. "
            "Install newkinds again; for classes of your own choice see data.known of folders and CSV files."
        )
    new = [number for grade in content["new"].values() for number in grade]
    return ClassList(content["known"], new, content.get("class_names", []), f"{name} {checksum[:16]}")
