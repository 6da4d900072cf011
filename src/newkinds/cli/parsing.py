"""A parser whose help begins with one short line, and whose errors say what to type instead."""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..errors import nearest
from ..text import visible

Argument = tuple[str, dict[str, Any]]  # what argparse's add_argument takes


class VerbParser(argparse.ArgumentParser):
    """As argparse's, with a hint for whatever was misspelt."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Nothing may be left over; it is said by the parser of the verb, which knows what there is."""
        known, left = super().parse_known_args(args, namespace)
        if left:
            option = next((text for text in left if text.startswith("-")), None)
            if option is None:
                self.error(f"{left[0]} is one argument too many.")
            name = option.partition("=")[0]
            self.error(f"there is no option {name}.{_nearest_option(name, self._option_string_actions)}")
        return known, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A verb that there is not: its nearest is named, not all of them."""
        if action.choices is not None and value not in action.choices:
            kind = str(action.metavar).lower()
            self.error(f"there is no {kind} {value}.{nearest(str(value), map(str, action.choices))}")

    def error(self, message: str) -> NoReturn:
        """Say how the verb is used, what is wrong, and where to read more; and end."""
        said = re.sub(r"\Aargument (\S+): (?=.* is not )", r"\1 ", message)
        self.print_usage(sys.stderr)
        self.exit(2, visible(f"{self.prog}: error: {said}\nsee {self.prog} --help\n"))


def _nearest_option(name: str, options: Iterable[str]) -> str:
    """A hint for an option that there is not; of `-n`, the only one that begins with that letter."""
    names = list(options)
    if len(name) == 2:
        begin = [option for option in names if option.startswith(f"-{name}")]
        return f" Did you mean '{begin[0]}'?" if len(begin) == 1 else ""
    return nearest(name, names)


def usage_of(command: str, arguments: Sequence[Argument]) -> str:
    """How a verb is used, in one line: options that may be left out are not named.

    >>> usage_of("newkinds move", …)
    'newkinds move [options] RUN IMAGE … --to CATEGORY'
    """
    words = [command, "[options]"]
    for flag, how in arguments:
        name, nargs = str(how.get("metavar", flag)), str(how.get("nargs"))
        if flag.startswith("-"):
            words += [flag, name] if how.get("required") else []
        elif nargs == "?":
            # only a recipe may name the data instead
            words.append(name if flag == "data" else f"[{name}]")
        else:
            words.append({"*": f"[{name} …]", "+": f"{name} …"}.get(nargs, name))
    return " ".join(words)


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number") from None


def whole_number_or_auto(text: str) -> int | str:
    return text if text == "auto" else whole_number(text)


def whole_numbers(text: str) -> list[int]:
    return [whole_number(number.strip()) for number in text.split(",") if number.strip()]


class Joined(argparse.Action):
    """Makes one list of several: `--seeds 0,1 2`."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, [value for some in values for value in some])
