"""The command line: the verbs are in the modules beside this one, by what they are for."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from .. import process
from .._version import __version__
from ..errors import NewkindsError, RunEnded, is_expected, outside_names, place_outside, reason_of
from ..text import show
from . import comparing, correcting, finding, keeping, using  # noqa: F401  (they add verbs)
from .options import PLUGIN, VERBS, Verb
from .parsing import VerbParser, usage_of

WORK = {  # what people do, one after the other, and by which verbs: as --help shows them
    "see it work": ("demo", "list"),
    "find": ("discover", "check", "count", "tune"),
    "look": ("studio", "report", "next"),
    "correct": ("name", "merge", "split", "move", "junk", "accept", "undo", "redo", "log", "refine"),
    "grow": ("update", "predict"),
    "take away": ("export",),
    "research": ("train", "bench", "eval", "assign", "diagnose", "figures", "import", "plugin check"),
    "keep order": ("data check", "cache list", "cache clear"),
}
EXAMPLE_WIDTH = 57  # columns of a command, before what it does
USAGE = "newkinds [-h] [--version] [--debug] VERB …"
ABOUT = "Recognise the known kinds in your images, and discover, count and look at the new ones."
ASK = "newkinds VERB --help tells more about one of them."
LAYOUT = "photos/ has one folder per known class, and a folder 'unlabeled' (or loose files) for everything else."
GROUPS = {
    "data": "Manage the benchmark data sets.",
    "cache": "Manage the cached tokens that --cache-views makes.",
    "plugin": "Methods, organizers … of your own.",
}


def parser(first: str | None = None) -> argparse.ArgumentParser:
    """The parsers of all verbs; or only of those that begin with a word, which takes a fraction of the time."""
    below = "\n\n".join([*_work_lines(), LAYOUT, ASK])
    main = VerbParser("newkinds", USAGE, **_help(ABOUT, below))
    main.add_argument("--version", action="version", version=f"newkinds {__version__}")
    main.add_argument("--debug", action="store_true", help="show the traceback of an error")
    places = {"": main.add_subparsers(prog="newkinds", metavar="VERB", help=argparse.SUPPRESS)}
    wanted = {name: verb for name, verb in _in_order().items() if first in (None, name.partition(" ")[0])}
    for name, verb in wanted.items():
        group, _, last = name.rpartition(" ")
        if group not in places:
            examples = [e for other in VERBS if other.startswith(group) for e in VERBS[other].examples]
            added = places[""].add_parser(group, help=GROUPS[group], **_help(GROUPS[group], _listed(examples)))
            places[group] = added.add_subparsers(metavar="ACTION", required=True)
        usage, about = usage_of(f"newkinds {name}", verb.arguments), _help(verb.summary, _listed(verb.examples))
        added = places[group].add_parser(last, usage=usage, help=verb.summary, **about)
        added.set_defaults(verb=name)
        for flag, how in verb.arguments if group else [*verb.arguments, PLUGIN]:
            added.add_argument(flag, **how)
    return main


def _with_others(verb: Verb, given: dict[str, Any]) -> int:
    """One of the processes that torchrun has started: the first does the verb, the others help it."""
    from ..training.distributed import join_others

    with join_others() as help_first:
        if help_first is not None:
            from ..training import loop  # noqa: F401 (what they will be called for, while the first looks at the data)

            help_first()
            status = 0
        else:
            status = verb.run(**given) or 0
    sys.stdout.flush()
    sys.stderr.flush()
    # at once: threads of torch that wait for processes which have ended would abort this one while it is taken down
    os._exit(status)


def _end_interrupted(verb: str | None, interrupts: process.Interrupts) -> int:
    interrupts.ignore()  # a second Ctrl-C would only show where the command is ending
    resumes = verb in ("demo", "train", "discover", "tune", "refine", "update", "bench")
    if process.is_first():
        show(f"interrupted{'; to resume, rerun the same command' if resumes else ''}", file=sys.stderr)
    return 130


def _how_to_go_on(error: Exception, verb: str | None, plugins: Sequence[str]) -> str:
    """What to do about an error that neither the user nor the machine caused."""
    where = f"newkinds --debug {verb} … shows where it happened."
    if place_outside(error) is not None:
        return where
    if plugins:
        return f"What a plugin returned may be the cause: newkinds plugin check {plugins[-1]} tells. {where}"
    if outside := outside_names():  # parts of other packages, which need no --plugin
        return f"What a part of {' or '.join(outside)} returned may be the cause: {where}"
    return f"This may be a bug in newkinds: {where}"


def verbs_by_work() -> dict[str, list[str]]:
    """What people do → the verbs for it; those that nobody has placed come last."""
    placed = {work: [name for name in names if name in VERBS] for work, names in WORK.items()}
    others = [name for name in VERBS if not any(name in names for names in placed.values())]
    return {**placed, **({"more": others} if others else {})}


def _in_order() -> dict[str, Verb]:
    return {name: VERBS[name] for names in verbs_by_work().values() for name in names}


def _work_lines() -> list[str]:
    """For each thing that people do its verbs, each by an example."""
    blocks = []
    for work, names in verbs_by_work().items():
        lines = [f"{work}:"]
        for name in names:
            command, _, what = VERBS[name].examples[0].partition("  ")
            gap = " " * (EXAMPLE_WIDTH - len(command)) if len(command) < EXAMPLE_WIDTH else f"\n{' ' * 4}"
            lines.append(f"  {command}{gap}{what.strip() or VERBS[name].summary}")
        blocks.append("\n".join(lines))
    return blocks


def _listed(examples: Sequence[str]) -> str:
    return "\n  ".join(["examples:", *examples])


def _help(summary: str, below: str) -> dict[str, Any]:
    return {"description": summary, "epilog": below, "formatter_class": argparse.RawDescriptionHelpFormatter}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 0 (done), 1 (not done), 2 (misused) or 130 (interrupted)."""
    verb, debug, plugins = None, False, []
    interrupts = process.Interrupts(listen=arguments is None)
    try:
        with process.one_speaks():
            named = sys.argv[1:2] if arguments is None else list(arguments[:1])
            is_verb = any(name.partition(" ")[0] in named for name in VERBS)
            given = vars(parser(named[0] if is_verb else None).parse_args(arguments))
            verb, debug = given.pop("verb", None), given.pop("debug")
            if verb is None:
                parser().print_help()
                sys.exit(2)
            tables_only = VERBS[verb].run.__module__ == correcting.__name__
            process.prepare(opens_images=not tables_only, download=given.pop("may_download", False))
            plugins = given.pop("plugins", [])
            for file in plugins:
                from ..plugins import load_plugin

                load_plugin(file)
            if "settings" in given:
                from ..settings import parse_assignment

                given["settings"] = [parse_assignment(text) for text in given["settings"]]
        if process.is_one_of_several():
            return _with_others(VERBS[verb], given)
        return VERBS[verb].run(**given) or 0
    except KeyboardInterrupt:
        return _end_interrupted(verb, interrupts)
    except RunEnded as ended:
        if interrupts.came:  # all of them
            return _end_interrupted(verb, interrupts)
        if debug:
            raise
        if str(ended):
            show(f"error: {ended}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # the reader (head, less) has closed: nothing more to say, and nothing to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if interrupts.came and not isinstance(error, NewkindsError):  # in a library that was being imported
            return _end_interrupted(verb, interrupts)
        if debug:
            raise
        try:
            show(f"error: {reason_of(error)}", file=sys.stderr)
            if not is_expected(error):
                show(_how_to_go_on(error, verb, plugins), file=sys.stderr)
        except MemoryError:  # there is none left even for a sentence
            os.write(2, b"error: there is not enough memory.\n")
        return 1
