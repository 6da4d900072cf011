"""An estimate of the number of categories: in words, and as a picture of its curve. Needs no torch."""

import io
import math
from dataclasses import dataclass, field
from pathlib import Path

from .ownership import write_output
from .text import percent, text_table

CURVE_SHOWN = 8  # numbers of categories in a summary, of those that were tried


@dataclass(frozen=True)
class Count:
    """An estimate of the number of categories, and what it rests on."""

    answer: int  # categories in total, known ones included
    curve: list[tuple[int, float]]  # (K, score), each K once, in the order in which they were tried
    method: str  # its name in COUNTERS
    known: int  # classes with labelled images
    score_is: str = "labelled images that fit"  # in words, a share
    low: int | None = None  # the interval that holds the true number with probability `level`; None: not estimated
    high: int | None = None
    level: float | None = None
    sure: str = ""  # "sure", "fairly sure" or "unsure"; empty: not estimated
    votes: dict[str, int] = field(default_factory=dict)  # what each part of the estimate says alone
    caution: str = ""  # what makes the estimate uncertain, in a sentence
    accepted: int = 0  # of `known`, those that are no classes of the data: people accepted images of a new category

    @property
    def new(self) -> int:
        """Categories besides the known ones."""
        return self.answer - self.known

    @property
    def score(self) -> float:
        """The score at the answer."""
        return dict(self.curve)[self.answer]


def parts_text(count: Count) -> str:
    """`3 known, 1 accepted and 4 new`"""
    accepted = f", {count.accepted:,} accepted" if count.accepted else ""
    return f"{count.known - count.accepted:,} known{accepted} and {count.new:,} new"


def count_text(count: Count) -> str:
    """The answer, how sure it is, what each part says alone, and the curve: around the answer, or the best of it."""
    tried = f"({count.method}; {len(count.curve)} numbers tried)"
    lines = [f"{count.answer} categories: {parts_text(count)} {tried}"]
    if count.low is None or count.high is None:
        shown = sorted(count.curve, key=lambda point: (point[0] != count.answer, -point[1], point[0]))[:CURVE_SHOWN]
        heading = "best of them"
    else:
        lines.append(how_sure(count))
        parts = [[part, str(k)] for part, k in count.votes.items()]
        lines.append(text_table(["part of the estimate", "alone"], parts))
        within = [point for point in sorted(count.curve) if count.low <= point[0] <= count.high]
        shown = [*within[:: math.ceil(len(within) / CURVE_SHOWN)], (count.answer, count.score)]
        heading = "categories"
    rows = [[f"{k}{' *' if k == count.answer else ''}", percent(score)] for k, score in sorted(set(shown))]
    lines.append(text_table([heading, f"{count.score_is} %"], rows))
    tied = [k for k, score in count.curve if score == count.score]
    if len(tied) > 1 and count.low is None:
        lines.append(f"{len(tied)} numbers from {min(tied)} to {max(tied)} are equally good; * is the answer.")
    return "\n\n".join(lines)


def how_sure(count: Count) -> str:
    """The interval and what it means, in plain words; empty for ways of counting that give none."""
    if count.low is None or count.high is None or count.level is None:
        return ""
    meaning = {
        "sure": "The number is sure enough to work with.",
        "fairly sure": "The number is a fair guess: look at the categories before you rely on it.",
        "unsure": "The number is unsure: only the interval means something.",
    }.get(count.sure, "")
    words = [f"Between {count.low} and {count.high} with a probability of {100 * count.level:.0f} %.", meaning]
    return " ".join(part for part in (*words, count.caution) if part)


def plot(count: Count, path: str | Path | None = None) -> bytes:
    """The score of each K that was tried, the answer and its interval, as a PNG; written to `path` if one is given."""
    # Imported here: counting does without matplotlib. No pyplot: it has global state.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter, ScalarFormatter

    figure = Figure(figsize=(6.4, 3.6), dpi=160, facecolor="white", layout="constrained")
    axes = figure.subplots()
    ink, blue, orange, pale = "#222222", "#0072b2", "#d55e00", "#999999"
    ks, scores = zip(*sorted(count.curve), strict=True)
    axes.plot(ks, scores, color=blue, linewidth=1.2, marker="o", markersize=3)
    if count.known:
        axes.axvline(count.known, color=pale, linewidth=1, linestyle=":", label=f"{count.known} labelled classes")
    answer = f"answer: {count.answer} categories, {count.new} of them new"
    axes.plot(count.answer, count.score, "o", markersize=9, color=orange, label=answer)
    if count.low is not None and count.high is not None and count.level is not None:
        within = f"{100 * count.level:.0f} % interval: {count.low} to {count.high}"
        axes.axvspan(count.low, count.high, color=orange, alpha=0.12, linewidth=0, label=within)
    if ks[-1] > 20 * max(count.known, 1):  # the peak would be squeezed into the left margin
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("categories K", color=ink)
    axes.set_ylabel(count.score_is, color=ink)
    axes.set_title(f"How many categories? ({count.method})", fontsize=10, color=ink)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})  # no version: same input, same bytes
    if path is not None:
        write_output(Path(path), png.getvalue())
    return png.getvalue()
