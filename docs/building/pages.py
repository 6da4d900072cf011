"""What is different in a page on the site: links to pages of the repository's root, and to verbs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

from newkinds.cli import VERBS

from . import reference, verbs
from .generated import DOCS, GENERATED, ROOT, write_pages

SHOWN = {file: DOCS / GENERATED / file.relative_to(ROOT) for file in [*ROOT.glob("*.md"), *ROOT.glob("results/*.md")]}
NOTEBOOK = "\n```{toctree}\n:hidden:\n:glob:\n\nresults/*\n```\n"  # its pages stand below RESULTS in the sidebar
SCREENSHOTS = "screenshots/"
ONLY_HERE = {  # pages that the repository does not have, by the heading of the index under which they belong
    "Reference": {"Verbs": f"{GENERATED}/{verbs.FOLDER}/index", "Python": f"{GENERATED}/{reference.FOLDER}/index"},
}


def relinked(text: str, was: Path, now: Path) -> str:
    """The Markdown of a page that lay in the folder `was` and lies in `now`, with links that lead to the same."""

    def link(found: re.Match[str]) -> str:
        file, hash_mark, anchor = found[1].partition("#")
        target = (was / file).resolve()
        if not file or not target.exists():
            return found[0]
        return f"]({Path(os.path.relpath(SHOWN.get(target, target), now)).as_posix()}{hash_mark}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", link, text)


def make_pages(app: Sphinx) -> None:
    """Write all pages that are not in the repository's docs folder."""
    of_root = {
        file.relative_to(ROOT).as_posix(): relinked(file.read_text(encoding="utf-8"), file.parent, page.parent)
        for file, page in SHOWN.items()
    }
    of_root["RESULTS.md"] += NOTEBOOK
    write_pages({**of_root, **verbs.verb_pages(), **reference.reference_pages()})


def link_to_root(app: Sphinx, docname: str, source: list[str]) -> None:
    if not docname.startswith(GENERATED):
        source[0] = relinked(source[0], was=DOCS, now=DOCS)
    if docname == "index":
        source[0] += sidebar(source[0])


def sidebar(index: str) -> str:
    """The lists of links of the index as tables of contents: a repository's page would show these as bare words."""
    trees = []
    for section in index.split("\n## ")[1:]:
        caption, _, text = section.partition("\n")
        pages = {**ONLY_HERE.get(caption, {}), **dict(re.findall(r"^- \[(.+?)\]\((\S+\.md)\)", text, re.MULTILINE))}
        lines = "\n".join(f"{title} <{page.removesuffix('.md')}>" for title, page in pages.items())
        trees.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n")
    return "".join(trees)


def link_verbs(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """`newkinds discover …` in a text leads to the page of the verb."""
    for literal in list(doctree.findall(nodes.literal)):
        words = literal.astext().split()
        named = [" ".join(words[1:n]) for n in (3, 2)] if words[:1] == ["newkinds"] else []
        for verb in [verb for verb in named if verb in VERBS][:1]:
            page = f"{GENERATED}/{verbs.FOLDER}/{verbs.page_name(verb)}"
            if page != docname and not isinstance(literal.parent, (nodes.reference, nodes.title)):
                uri = app.builder.get_relative_uri(docname, page)
                link = nodes.reference("", "", literal.deepcopy(), internal=True, refuri=uri)
                literal.replace_self(link)


class WithoutMissingScreenshots(SphinxTransform):
    """Screenshots are taken by the browser tests; one that has not been taken yet is left out."""

    default_priority = 10

    def apply(self, **kwargs: Any) -> None:
        for image in list(self.document.findall(nodes.image)):
            if image["uri"].startswith(SCREENSHOTS) and not (DOCS / image["uri"]).is_file():
                logging.getLogger(__name__).info("left out, not taken yet: %s", image["uri"])
                image.parent.remove(image)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", make_pages)
    app.connect("source-read", link_to_root)
    app.connect("doctree-resolved", link_verbs)
    app.connect("autodoc-process-docstring", reference.docstring_as_rst)
    app.connect("autodoc-process-signature", reference.signature_as_written)
    app.add_transform(WithoutMissingScreenshots)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
