"""What the pages say exists: commands, settings, files, links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

import newkinds
from newkinds.assigners import ASSIGNERS
from newkinds.cli import parser
from newkinds.data import DATASETS
from newkinds.data.corrections import SETTINGS as OF_REFINED_RUNS
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.methods import METHODS
from newkinds.runs.config import EmbeddingConfig, TrainConfig
from newkinds.settings import settings_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for folder in (ROOT, ROOT / "docs", ROOT / "results") for page in sorted(folder.glob("*.md"))]
BUILDERS = {
    "data": [DATASETS[name] for name in DATASETS],
    "backbone": [build_backbone],
    "organizer": [ORGANIZERS[name] for name in ORGANIZERS],
    "method": [METHODS[name].Config for name in METHODS],
    "embedding": [EmbeddingConfig],
    "assigner": [ASSIGNERS[name] for name in ASSIGNERS],
    "train": [TrainConfig],
}
SETTINGS = {section: {"name", *(s for b in builders for s in settings_of(b))} for section, builders in BUILDERS.items()}
SETTINGS["data"] |= set(OF_REFINED_RUNS)
SETTINGS["organizer"] |= set(ORGANIZERS)  # settings that apply if that organizer is chosen


def commands(text: str) -> list[str]:
    """Commands of shell blocks, and those in the text that have options and no … or [option]."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ").splitlines()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    inline = [" ".join(span.split()) for span in re.findall(r"`(newkinds [^`]+ --[^`]+)`", prose)]
    return [line for line in blocks + inline if line.startswith("newkinds ") and not re.search(r"[…\[]| N\b", line)]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_is_one_that_the_command_line_takes(page: Path) -> None:
    for command in commands(page.read_text(encoding="utf-8")):
        try:
            parser().parse_args(shlex.split(command, comments=True)[1:])
        except SystemExit:
            pytest.fail(f"{page.name}: {command}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_setting_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    setting = rf"({'|'.join(SETTINGS)})\.(?!safetensors)([a-z]\w*)"  # embedding.safetensors is a file
    named = re.findall(rf"--set\s+'?{setting}=[^…]", text) + re.findall(rf"`{setting}(?:=[^`]*)?`", text)
    assert [f"{section}.{name}" for section, name in named if name not in SETTINGS[section]] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_and_every_path_of_the_package_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        linked = page.parent / file if file else page
        assert linked.exists() or file.startswith("screenshots/"), target  # those are taken by the browser tests
        assert not anchor or anchor in anchors(linked), target
    for path in re.findall(r"`((?:src/)?newkinds/[\w/.]+|benchmarks/[\w/.]+|src/[\w/.]+)`", text):
        if "METHOD" not in path:
            assert (ROOT / path).exists() or (ROOT / "src" / path).exists(), path
    for module in re.findall(r"^(?:from|import) (newkinds[\w.]*)", text, re.MULTILINE):
        __import__(module)


def test_the_version_is_the_same_wherever_it_stands() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^version = "(.*)"$', project, re.MULTILINE) == [newkinds.__version__]
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert next(version for version in versions if version != "Unreleased") == newkinds.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == newkinds.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what its schema requires
