"""The site: built without a warning, complete, and loading nothing from elsewhere."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from filelock import FileLock

import newkinds
from newkinds.cli import parser
from newkinds.cli.options import VERBS

ROOT = Path(__file__).resolve().parents[1]
REASON = "the site is not built: pip install 'newkinds[docs]'"
for package in ("sphinx", "myst_parser", "furo"):
    pytest.importorskip(package, reason=REASON)

LOADING = {  # elements that make a browser load something, and the attributes that say what
    "script": ["src"], "img": ["src", "srcset"], "source": ["src", "srcset"], "video": ["src", "poster"],
    "audio": ["src"], "iframe": ["src"], "embed": ["src"], "object": ["data"], "link": ["href"], "base": ["href"],
    "use": ["href", "xlink:href"], "image": ["href", "xlink:href"], "input": ["src"],
}  # fmt: skip
NOT_LOADED = {"canonical", "next", "prev", "author", "index", "search", "license", "help"}  # <link rel="…">
ELSEWHERE = re.compile(r"^\s*(?:[a-z]+:)?//", re.IGNORECASE)


class Page(HTMLParser):
    """What a page loads, where it leads, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads_to: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, pairs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in pairs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a":
            self.leads_to.append(given.get("href", ""))
        if not (tag == "link" and NOT_LOADED.issuperset(given.get("rel", "").split())):
            self.loads += [given[name] for name in LOADING.get(tag, []) if name in given]
        self.loads += of_style(given.get("style", ""))


def of_style(text: str) -> list[str]:
    """What a style sheet loads."""
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", text)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The site, and what building it said; built once, also if the tests run in several processes."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    out = shared / "site"
    with FileLock(shared / "site.lock"):
        if not (said := shared / "site.txt").is_file():
            build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", shared / "doctrees"]
            done = subprocess.run([*build, ROOT / "docs", out], capture_output=True, text=True)
            said.write_text(f"{done.stderr}exit status {done.returncode}")
    return out, said.read_text()


@pytest.fixture(scope="module")
def site(built: tuple[Path, str]) -> Path:
    return built[0]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}


def test_it_is_built_without_a_warning(built: tuple[Path, str]) -> None:
    assert built[1] == "exit status 0"


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {file: page.loads for file, page in pages.items()}
    loaded |= {file: of_style(file.read_text(encoding="utf-8")) for file in site.rglob("*.css")}
    assert sum(map(len, loaded.values())) > len(pages), "pages load at least their own style sheet"
    assert [(file.name, what) for file, found in loaded.items() for what in found if ELSEWHERE.match(what)] == []
    for file, page in pages.items():  # and what is loaded is there
        for what in page.loads:
            if not what.startswith("data:"):
                assert (file.parent / what.partition("?")[0].partition("#")[0]).exists(), (file.name, what)


def test_a_page_that_loads_something_is_found_out() -> None:
    page = Page(
        '<link rel="stylesheet" href="//a.net/x.css"><script src="https://b.org/x.js"></script><a href="http://c">'
    )
    assert [bool(ELSEWHERE.match(what)) for what in page.loads] == [True, True]
    assert of_style('@import "https://d/x.css"; a {background: url(http://e/x.png)}') == [
        "https://d/x.css",
        "http://e/x.png",
    ]


def test_every_link_leads_to_a_page_of_the_site_and_to_an_anchor_on_it(pages: dict[Path, Page]) -> None:
    for file, page in pages.items():
        for link in page.leads_to:
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = (file.parent / path).resolve() if path else file
            assert target.exists(), (file.name, link)
            assert not anchor or target not in pages or anchor in pages[target].anchors, (file.name, link)


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_a_page_with_all_that_its_help_says(
    site: Path, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (site / "generated" / "verbs" / f"{verb.replace(' ', '-')}.html").read_text(encoding="utf-8")
    shown = " ".join(html.unescape(re.sub("<[^>]+>", "", text)).split())
    monkeypatch.setenv("COLUMNS", "2000")  # so that no line is wrapped
    with pytest.raises(SystemExit):
        parser().parse_args([*verb.split(), "--help"])
    _usage, *lines = capsys.readouterr().out.splitlines()
    said = [piece.strip() for line in lines for piece in re.split(r"\s{2,}", line.strip())]
    headings = {"", "positional arguments:", "options:", "examples:", "-h, --help", "show this help message and exit"}
    assert len(said) > 5
    assert [piece for piece in said if piece not in headings and piece not in shown] == []


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page]) -> None:
    described = {anchor for page in pages.values() for anchor in page.anchors}
    assert [name for name in newkinds._HOME if f"newkinds.{name}" not in described] == []
    for name in ("cluster.KMeans.fit", "losses.info_nce", "metrics.clustering_accuracy", "diagnose.effective_rank"):
        assert f"newkinds.{name}" in described
    for name in vars(newkinds.data.splits):
        value = getattr(newkinds.data.splits, name)
        if getattr(value, "__module__", "") == "newkinds.data.splits" and not name.startswith("_"):
            assert f"newkinds.data.splits.{name}" in described


def test_code_that_names_a_verb_leads_to_its_page(site: Path) -> None:
    text = (site / "discover.html").read_text(encoding="utf-8")
    assert re.search(r'<a class="reference internal" href="generated/verbs/tune.html"><code', text)
