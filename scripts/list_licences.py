"""Write docs/licences.md: the licence of every package that newkinds depends on, as its installed metadata says.

python scripts/list_licences.py          # with all extras installed; those that are not keep their lines
"""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
ABOUT = """# Licences

newkinds is under the Apache License 2.0. It is installed with these packages; `scripts/list_licences.py` writes this
page from what the installed packages say about themselves (torch's list includes what its binaries bundle).

| Package | Needed for | Licence |
|---|---|---|
"""


def required() -> dict[str, str]:
    """Package → the extra that needs it, or "always"; without extras that only name others."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    project = text[text.index("\ndependencies = [") : text.index("\n[project.scripts]")]
    found: dict[str, str] = {}
    section = ""
    for line in project.splitlines():
        if begun := re.match(r"(\w+) = \[", line):
            section = begun[1]
        for quoted in re.findall(r'"([^"]+)"', line.partition("  #")[0]):
            name = Requirement(quoted).name
            if name != "newkinds":
                found.setdefault(name, "always" if section == "dependencies" else section)
    return found


def licence(package: str) -> str | None:
    """As the package's metadata says, the short way first; None if it is not installed or does not say."""
    try:
        about = distribution(package).metadata
    except PackageNotFoundError:
        return None
    classified = [c.split(" :: ")[-1] for c in about.get_all("Classifier") or [] if c.startswith("License :: ")]
    written = (about["License"] or "").strip().partition("\n")[0]
    short = about["License-Expression"] or ", ".join(classified) or written
    return short or None


def listed() -> dict[str, str]:
    """Package → its line on the page as it is."""
    lines = PAGE.read_text("utf-8").splitlines() if PAGE.is_file() else []
    return {line.split("|")[1].strip(): line for line in lines if line.count("|") == 4}


def main() -> None:
    before, lines = listed(), []
    for package, extra in required().items():
        said = licence(package)
        lines.append(
            f"| {package} | {extra} | {said} |" if said else before.get(package, f"| {package} | {extra} | ? |")
        )
    PAGE.write_text(ABOUT + "\n".join(lines) + "\n", "utf-8")
    print(f"{len(lines)} packages in {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
