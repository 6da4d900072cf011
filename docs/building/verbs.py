"""One page per verb of the command line, from its parser."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from unittest import mock

from newkinds import cli

from .generated import DOCS

FOLDER = "verbs"


def page_name(verb: str) -> str:
    return verb.replace(" ", "-")


def verb_pages() -> dict[str, str]:
    """`verbs/discover.md` and so on, and `verbs/index.md`, in the order of `newkinds --help`."""
    with mock.patch.dict(os.environ, COLUMNS="100"):  # argparse wraps lines at the width of the terminal
        parsers = dict(_parsers(cli.parser()))
        pages = {f"{FOLDER}/{page_name(name)}.md": _page(name, parser) for name, parser in parsers.items()}
    return {**pages, f"{FOLDER}/index.md": _index(list(parsers))}


def _parsers(parser: argparse.ArgumentParser, verb: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Parsers of the verbs: `discover`, `data check` …"""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield verb, parser
    for group in groups:
        for name, inner in group.choices.items():
            yield from _parsers(inner, f"{verb} {name}".strip())


def _index(names: list[str]) -> str:
    parts = ["# The command line", "", "`newkinds VERB --help` shows the same in a terminal."]
    for work, verbs in cli.verbs_by_work().items():
        of_work = [name for name in verbs if name in names]
        rows = [f"| [`newkinds {n}`]({page_name(n)}.md) | {_escaped(cli.VERBS[n].summary)} |" for n in of_work]
        toctree = ["```{toctree}", ":hidden:", "", *(f"newkinds {n} <{page_name(n)}>" for n in of_work), "```"]
        parts += ["", f"## {work.capitalize()}", "", "| verb | what it does |", "|---|---|", *rows, "", *toctree]
    return "\n".join(parts) + "\n"


def _page(name: str, parser: argparse.ArgumentParser) -> str:
    parts = [f"# newkinds {name}", "", _escaped(parser.description or ""), ""]
    if examples := cli.VERBS[name].examples:
        parts += ["```sh", *(_with_comment(example) for example in examples), "```", ""]
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    parts += ["## Usage", "", "```text", re.sub(r"\n {7}", "\n", usage), "```", ""]
    given = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    for title, actions in (
        ("Arguments", [a for a in given if not a.option_strings]),
        ("Options", [a for a in given if a.option_strings]),
    ):
        if actions:
            rows = [f"| {_code(_invocation(a))} | {_escaped((a.help or '') % vars(a))} |" for a in actions]
            parts += [f"## {title}", "", f"| {title.lower()[:-1]} | what it is |", "|---|---|", *rows, ""]
    if pages := _pages_about(name):
        parts += ["## More", "", *(f"- [](../../{page})" for page in pages), ""]
    return "\n".join(parts)


def _pages_about(verb: str, at_most: int = 4) -> list[str]:
    """The pages that name a verb, the one that names it most often first."""
    named = {
        page.name: len(re.findall(rf"\bnewkinds {verb}\b", page.read_text(encoding="utf-8")))
        for page in sorted(DOCS.glob("*.md"))
        if page.name != "index.md"
    }
    return sorted((page for page in named if named[page]), key=lambda page: -named[page])[:at_most]


def _invocation(action: argparse.Action) -> str:
    """`RUN`, `--time TIME`, `--seeds N [N ...]`, `-q, --quiet`."""
    value = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    if not value and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return value or action.dest
    value = value or action.dest.upper()
    if action.nargs == "+":
        value = f"{value} [{value} ...]"
    return ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")


def _with_comment(example: str) -> str:
    """An example as the help shows it, `command     what it does`, with a # before what it does."""
    return re.sub(r"(?<=\S)( {2,})(?=\S)", r"\1# ", example, count=1)


def _code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def _escaped(text: str) -> str:
    """Plain text of a terminal as Markdown, on one line; `code` stays code."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(_code(p[1:-1]) if p.startswith("`") else re.sub(r"([\\*_\[\]<>|$])", r"\\\1", p) for p in pieces)
