"""An estimate of the number of categories, as a run keeps it: `k_auto` before training, `count` in trained features."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..counted import Count, plot
from ..errors import NewkindsError
from .directory import K_AUTO, RunDirectory

__all__ = ["K_AUTO", "read_count", "write_count"]
LATER_KEYS: dict[str, Callable[[Any], Any]] = {  # of a count that is written; older files have none of them
    "low": int, "high": int, "level": float, "sure": str, "caution": str,
    "votes": lambda votes: {str(part): int(k) for part, k in votes.items()},
}  # fmt: skip


def write_count(counted: Count, run: RunDirectory, name: str) -> None:
    run.write(f"{name}.png", plot(counted))
    run.write_json(f"{name}.json", asdict(counted))


def read_count(run: RunDirectory, name: str = "count") -> Count:
    """What `count_categories` (or `--k auto`) wrote into a run."""
    record = run.read_json(f"{name}.json")
    try:
        curve = [(int(k), float(score)) for k, score in record["curve"]]
        return Count(
            int(record["answer"]), curve, str(record["method"]), int(record["known"]), str(record["score_is"]),
            **{name: as_type(record[name]) for name, as_type in LATER_KEYS.items() if record.get(name) is not None},
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise NewkindsError(f"{run.path(name)}.json is damaged: delete it to count again.") from None
