"""Write docs/licences.md: the licence of every package that newkinds depends on, and of those that they bring along, as
their installed metadata says.

python scripts/list_licences.py          # with all extras installed; what is not here keeps its line
"""

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
ABOUT = """# Licences

newkinds is under the Apache License 2.0. It is installed with these packages; `scripts/list_licences.py` writes this
page from what the installed packages say about themselves (torch's list includes what its binaries bundle). Three
extras bring the GPL, and are never installed without asking: `infomap`; `heic`, as the wheels of pillow-heif bundle
x265; and `video`, as those of av bundle FFmpeg with x264 and x265.

| Package | Needed for | Licence |
|---|---|---|
{direct}

## What these bring along

Which of them are installed depends on the release and the platform: the `nvidia-*` packages, which have NVIDIA's own
licence, come with the build of torch for Linux that PyPI has, and not with that for CPUs alone.

| Package | Brought by | Needed for | Licence |
|---|---|---|---|
{brought}
"""


def requirements() -> Iterator[tuple[Requirement, str]]:
    """What pyproject.toml asks for, and the extra that needs it, or "always"."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    project = text[text.index("\ndependencies = [") : text.index("\n[project.scripts]")]
    section = ""
    for line in project.splitlines():
        if begun := re.match(r"(\w+) = \[", line):
            section = begun[1]
        for quoted in re.findall(r'"([^"]+)"', line.partition("  #")[0]):
            yield Requirement(quoted), "always" if section == "dependencies" else section


def required() -> dict[str, str]:
    """Package → the extra that needs it, or "always"; without extras that only name others."""
    found: dict[str, str] = {}
    for requirement, needed_for in requirements():
        if requirement.name != "newkinds":
            found.setdefault(requirement.name, needed_for)
    return found


def brought() -> dict[str, tuple[str, str]]:
    """Package that others bring along, as it is called here → the one that does, and what needs that."""
    own = {canonicalize_name(name) for name in required()} | {"newkinds"}
    found: dict[str, tuple[str, str]] = {}
    seen = set()
    for needed_for in dict.fromkeys(needed_for for _, needed_for in requirements()):  # what is always needed first
        waiting = [r for r, other in requirements() if other == needed_for and r.name != "newkinds"]
        for requirement in waiting:  # it grows meanwhile
            wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if wanted in seen:
                continue
            seen.add(wanted)
            for child in _requirements_of(requirement):
                waiting.append(child)
                if (name := canonicalize_name(child.name)) not in own:
                    found.setdefault(name, (wanted[0], needed_for))
    return found


def _requirements_of(requirement: Requirement) -> Iterator[Requirement]:
    """What an installed package, with these extras, has had installed here."""
    package = _installed(requirement.name)
    for child in map(Requirement, (package and package.requires) or []):
        asked = child.marker is None or any(child.marker.evaluate({"extra": e}) for e in ("", *requirement.extras))
        if asked and _installed(child.name) is not None:
            yield child


def licence(package: str) -> str | None:
    """As the package's metadata says, the short way first; None if it is not installed or does not say."""
    if (installed := _installed(package)) is None:
        return None
    about = installed.metadata
    classified = [c.split(" :: ")[-1] for c in about.get_all("Classifier") or [] if c.startswith("License :: ")]
    written = (about["License"] or "").strip().partition("\n")[0]
    said = about["License-Expression"] or ", ".join(classified) or written or _first_line(installed)
    return said.replace("|", "/") or None


def _first_line(installed: Distribution) -> str:
    """Of the licence that is enclosed."""
    files = [file for file in installed.files or [] if re.match(r"(LICEN[CS]E|COPYING)", file.name)]
    lines = files[0].read_text().splitlines() if files else []
    return next((line.strip() for line in lines if line.strip()), "")


def _installed(package: str) -> Distribution | None:
    try:
        return distribution(package)
    except PackageNotFoundError:
        return None


def listed() -> dict[str, list[str]]:
    """Package → the cells of its line on the page as it is."""
    lines = PAGE.read_text("utf-8").splitlines() if PAGE.is_file() else []
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row for row in rows if row[0] != "Package"}


def main() -> None:
    before = listed()
    direct = []
    for package, extra in required().items():
        said = licence(package)
        direct.append([package, extra, said] if said else before.get(package, [package, extra, "?"]))
    names = {canonicalize_name(row[0]) for row in direct}
    others = {name: row for name, row in before.items() if len(row) == 4 and canonicalize_name(name) not in names}
    for package, (parent, extra) in brought().items():
        others[package] = [package, parent, extra, licence(package) or "its metadata does not say"]
    tables = ["\n".join(f"| {' | '.join(row)} |" for row in rows) for rows in (direct, sorted(others.values()))]
    PAGE.write_text(ABOUT.format(direct=tables[0], brought=tables[1]), "utf-8")
    print(f"{len(direct)} packages and {len(others)} that they bring along in {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
