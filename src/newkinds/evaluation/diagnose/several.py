"""Many runs side by side: does lower or higher entropy go with better discovery?"""

import math
from collections.abc import Sequence

from scipy.stats import rankdata, t

from ...comparison import MINUS
from ...text import percent, text_table
from .result import CENTRED, FEATURE, Diagnosis

FEWEST = 5  # runs from which on a correlation is worth a line
MEASURED = {
    "entropy of CLS* (or its effective rank)": (FEATURE, "entropy"),
    "rank99 of CLS*": (FEATURE, "rank99"),
    "entropy of CLS* without its mean": (CENTRED, "entropy"),
}
LEGEND = (
    "ρ: Spearman's rank correlation over runs of one data set, split and backbone, with its 95 % interval (Fisher's z, "
    "Bonett and Wright) and p-value (Student's t).\nRuns that differ in the seed alone count as several, which makes "
    "intervals too narrow if other settings decide. The effective rank is exp(entropy): its ranks are the same."
)


def spearman(one: Sequence[float], other: Sequence[float]) -> tuple[float, tuple[float, float], float] | None:
    """Rank correlation, its 95 % interval and p-value; None for fewer than 4 pairs, or if one side does not vary.

    >>> spearman([1, 2, 3, 4, 5], [2, 3, 5, 4, 9])[0]
    0.9
    """
    n = len(one)
    if n < 4 or len(set(one)) < 2 or len(set(other)) < 2:
        return None
    x, y = rankdata(one), rankdata(other)
    x, y = x - x.mean(), y - y.mean()
    rho = float((x @ y) / math.sqrt(float(x @ x) * float(y @ y)))
    rho = min(max(rho, -1.0), 1.0)
    if abs(rho) > 1 - 1e-12:
        return rho, (rho, rho), 0.0
    half = 1.959964 * math.sqrt((1 + rho**2 / 2) / (n - 3))
    interval = (math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half))
    p = 2 * float(t.sf(abs(rho) * math.sqrt((n - 2) / (1 - rho**2)), n - 2))
    return rho, interval, p


def groups_of(found: Sequence[Diagnosis]) -> dict[str, list[Diagnosis]]:
    """Runs that may be compared: the same data set, split and backbone."""
    groups: dict[str, list[Diagnosis]] = {}
    for run in found:
        groups.setdefault(f"{run.data} (split {run.split}), {run.backbone}", []).append(run)
    return groups


def comparison_text(found: Sequence[Diagnosis]) -> str:
    """All runs, and how entropy and accuracy go together in each data set."""
    blocks = []
    for title, runs in groups_of(found).items():
        blocks += [title, text_table(["run", "method", "organizer", "seed", *FIGURES], [_row(run) for run in runs])]
        lines = _relations(runs)
        few = f"Fewer than {FEWEST} of these runs have a known accuracy, so no correlation is shown."
        blocks.append(text_table(["rank correlation with accuracy", "runs", *RELATIONS], lines) if lines else few)
    return "\n\n".join([*blocks, LEGEND])


FIGURES = ("entropy", "eff. rank", "rank99", "without mean", "All %", "Old %", "New %")
RELATIONS = ("ρ with All", "95 %", "p", "ρ with New", "95 %", "p")


def _row(run: Diagnosis) -> list[str]:
    feature, centred = run.spectrum(FEATURE), run.spectrum(CENTRED)
    figures = ["–"] * 3
    if feature is not None:
        figures = [f"{feature.entropy:.3f}", f"{feature.effective_rank:.1f}", f"{feature.rank99:.0f}"]
    accuracy = [percent((run.accuracy or {}).get(part)) for part in ("all", "old", "new")]
    without = "–" if centred is None else f"{centred.entropy:.3f}"
    return [run.run, run.method, run.organizer, str(run.seed), *figures, without, *accuracy]


def _relations(runs: Sequence[Diagnosis]) -> list[list[str]]:
    """A line for each quantity, over all runs and within each method, if there are enough runs."""
    judged = [run for run in runs if run.accuracy]
    methods = list(dict.fromkeys(run.method for run in judged))
    lines = []
    for name, (matrix, figure) in MEASURED.items():
        for method in [None, *(methods if len(methods) > 1 else [])]:
            some = [run for run in judged if method in (None, run.method) and run.spectrum(matrix) is not None]
            if len(some) >= FEWEST:
                values = [getattr(run.spectrum(matrix), figure) for run in some]
                cells = [cell for part in ("all", "new") for cell in _relation(values, some, part)]
                lines.append([name if method is None else f"  within {method}", str(len(some)), *cells])
    return lines


def _relation(values: Sequence[float], runs: Sequence[Diagnosis], part: str) -> list[str]:
    pairs = [
        (value, share) for value, run in zip(values, runs, strict=True)
        if run.accuracy and (share := run.accuracy[part]) is not None
    ]  # fmt: skip
    related = spearman(*zip(*pairs, strict=True)) if pairs else None
    if related is None:
        return ["–"] * 3
    rho, (low, high), p = related
    return [_with_sign(rho), f"[{_with_sign(low)}, {_with_sign(high)}]", f"{p:.1g}" if p < 0.001 else f"{p:.3f}"]


def _with_sign(value: float) -> str:
    return f"{value:+.2f}".replace("-", MINUS)
