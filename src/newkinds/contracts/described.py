"""What all kinds of parts promise: a line that says what they are, and settings that can be checked."""

import inspect

from ..errors import NewkindsError
from ..settings import coerce, settings_of
from .base import ASKED, AskedPart, contract, require


@contract(*ASKED)
def says_what_it_is(part: AskedPart) -> None:
    """Its docstring begins with a line for `newkinds list`."""
    first, _, rest = inspect.cleandoc(part.entry.__doc__ or "").partition("\n")
    require(bool(first), "there is no docstring: write one line that says what it is.")
    second = rest.split("\n")[0]
    require(not second, f"its first sentence goes on in a second line: {second!r}.")


@contract("method", "organizer", "tuning", "assigner", "data set")
def settings_can_be_checked(part: AskedPart) -> None:
    """Every setting has a type, and a default that is of it."""
    build = part.entry.Config if part.kind == "method" else part.entry
    for name, setting in settings_of(build).items():
        where = f"the setting '{name}'"
        is_typed = setting.annotation is not setting.empty
        require(is_typed, f"{where} has no type: write {name}: float = …, or put a / behind it, if it is none.")
        require(
            setting.default is not setting.empty or name in part.settings,
            f"{where} has no default: give it one, or put a / behind it, if it is none.",
        )
        if setting.default is not setting.empty:
            try:
                coerce(setting.default, setting.annotation, name)
            except NewkindsError as error:
                require(False, f"the default {setting.default!r} is not one of the values that it may take: {error}")
