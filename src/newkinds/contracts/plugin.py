"""All contracts of what a plugin file registers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..console import track
from ..errors import NewkindsError
from ..files import user_path
from ..plugins import load_plugin
from ..text import plural
from .base import ASKED, AskedPart, ContractResult, ask_all

SHOWN = {"held": "ok", "remark": "note", "left out": "-", "broken": "FAIL"}
SECTION = {"data set": "data"}  # of settings, where it is not called as the kind


def check_plugin(file: str | Path, settings: Sequence[Mapping[str, Any]] = ()) -> list[ContractResult]:
    """Whether the parts that a Python file registers hold what ours do, on a few drawn creatures.

    `settings`: theirs, where they are not the defaults, by sections: `{"data": {"root": "birds/"}}`.

    >>> [answer.reason for answer in check_plugin("mine.py") if answer.outcome == "broken"]
    """
    load_plugin(file)
    origin = str(user_path(file))
    named = [(kind, name) for kind, registry in ASKED.items() for name in registry.registered_from(origin)]
    if not named:
        raise NewkindsError(
            f'the plugin {file} registers nothing: put @METHODS.register("name") (ORGANIZERS, DATASETS …) before a '
            "class or function."
        )
    answers: list[ContractResult] = []
    for kind, name in track(named, "checking", total=len(named)):
        own = {k: v for layer in settings for k, v in layer.get(SECTION.get(kind, kind), {}).items()}
        with TemporaryDirectory(prefix="newkinds-") as folder:
            answers += ask_all(AskedPart(kind, name, Path(folder), own))
    return answers


def answers_text(answers: Sequence[ContractResult]) -> str:
    """For the terminal: a block for each part, a line for each contract; of those that fail for one reason
    the first."""
    blocks = []
    for part in dict.fromkeys((answer.part.kind, answer.part.name) for answer in answers):
        lines = [f"{part[0]} '{part[1]}'"]
        of_part = [answer for answer in answers if (answer.part.kind, answer.part.name) == part]
        failing = Counter(answer.reason for answer in of_part if answer.outcome == "broken")
        told = set()
        for answer in of_part:
            is_broken = answer.outcome == "broken"
            if is_broken and answer.reason in told:
                continue
            why = f": {answer.reason}" if answer.reason else ""
            lines.append(f"  {SHOWN[answer.outcome]:<4}  {answer.contract.says}{why}")
            if is_broken and (others := failing[answer.reason] - 1):
                lines.append(f"  {'':<4}  {others} other{'s fail' if others > 1 else ' fails'} for the same reason")
            if is_broken:
                told.add(answer.reason)
        blocks.append("\n".join(lines))
    broken = sum(answer.outcome == "broken" for answer in answers)
    asked = sum(answer.outcome != "left out" for answer in answers)
    all_held = f"all {plural(asked, 'contract')} held"
    blocks.append(f"{broken} of {plural(asked, 'contract')} broken" if broken else all_held)
    return "\n\n".join(blocks)


def answers_json(answers: Sequence[ContractResult]) -> list[dict[str, str]]:
    return [
        {
            "kind": answer.part.kind, "name": answer.part.name, "contract": answer.contract.says,
            "outcome": answer.outcome, "reason": answer.reason,
        }
        for answer in answers
    ]  # fmt: skip
