"""Diagnoses as pictures, PNG and SVG. Lines differ in style and markers and bars in hatching, not in colour alone."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...discovery.figures.sheet import GRID, INK, new_figure, picture
from .result import ADDED, CENTRED, CLS, DECODED, FEATURE, MIXTURE, REFINED, SAMPLE, Diagnosis, X

if TYPE_CHECKING:  # imported where it is used: most of this package does without matplotlib. No pyplot: global state
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#999999"
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
STYLES: list[dict[str, Any]] = [
    {"color": BLUE, "linestyle": "-", "linewidth": 2.0},
    {"color": INK, "linestyle": "--", "linewidth": 1.4},
    {"color": ORANGE, "linestyle": "-.", "linewidth": 1.8},
    {"color": GREEN, "linestyle": ":", "linewidth": 2.2},
    {"color": PURPLE, "linestyle": (0, (6, 2, 1, 2, 1, 2)), "linewidth": 1.6},
]
SMALLEST = 1e-7  # shares below this are not drawn: rounding
MARKERS = "os^DvPX*<>"


def pictures(found: Diagnosis, against: Diagnosis | None = None) -> dict[str, bytes]:
    """File name → content: spectra, fields (if there are any) and contribution (if there is one)."""
    made = _spectra(found, against).files("diagnose_spectra")
    if "entropy of A" in found.drawn:
        made |= _fields(found, against).files("diagnose_fields")
    if found.spectrum(ADDED) is not None:
        made |= _contribution(found, against).files("diagnose_contribution")
    return made


def panels(count: int, title: str, rows: int = 1) -> tuple["Figure", list["Axes"]]:
    """A figure with panels side by side, in the package's plain style."""
    figure = new_figure(5.2 * count, 0.5 + 3.9 * rows)
    figure.set_layout_engine("constrained")
    figure.suptitle(title, fontsize=11, color=INK)
    axes = figure.subplots(rows, count, squeeze=False).ravel().tolist()
    for each in axes:
        each.grid(color=GRID, linewidth=0.6)
        each.set_axisbelow(True)
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _legend_below(axes: "Axes", columns: int = 2) -> None:
    """Where no line can run through it."""
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns)


def _name(found: Diagnosis) -> str:
    return found.method if found.organizer == "none" else f"{found.method} + {found.organizer}"


@picture
def _spectra(found: Diagnosis, against: Diagnosis | None) -> "Figure":
    title = f"Spectra of {_name(found)}" + ("" if against is None else f", against {_name(against)}")
    figure, (of_images, of_tokens) = panels(2, title)
    own = [(found, FEATURE, "CLS*"), (found, CLS, "CLS"), (found, CENTRED, "CLS* − mean")]
    tokens = [(found, REFINED, "X_refined"), (found, X, "X"), (found, MIXTURE, "A·MLP₁(P2)"), (found, DECODED, "A·D")]
    if against is not None:
        own.insert(2, (against, FEATURE, "against: CLS*"))
        tokens.insert(2, (against, REFINED if against.spectrum(REFINED) else X, "against: tokens"))
    for axes, lines, rows in ((of_images, own, "images"), (of_tokens, tokens, "tokens of all images")):
        for line, (which, matrix, label) in enumerate(lines):
            if (entry := which.spectrum(matrix, SAMPLE)) is None:
                continue
            shares = [share for share in entry.shares if share > SMALLEST]
            shown = f"{label}: H = {entry.entropy:.2f}, rank99 = {entry.rank99:.0f}"
            axes.plot(range(1, len(shares) + 1), shares, label=shown, **STYLES[line])
        axes.set(xscale="log", yscale="log", xlabel="eigenvalue, largest first", ylabel="share of the sum")
        for axis in (axes.xaxis, axes.yaxis):  # powers of ten are equations to matplotlib, and text is text here
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda *_: "")
        axes.set_title(f"rows: {rows}", fontsize=10, color=INK)
        _legend_below(axes, columns=1)
    return figure


@picture
def _fields(found: Diagnosis, against: Diagnosis | None) -> "Figure":
    figure, (undecided, used) = panels(2, f"Fields of {_name(found)}")
    lines = [(found, name, name) for name in ("A", "A_prior", "A_data")]
    lines += [] if against is None else [(against, "A", f"against: A of {_name(against)}")]
    for line, (which, name, label) in enumerate(lines):
        if (counts := which.drawn.get(f"entropy of {name}")) is not None:
            edges = [place / len(counts) for place in range(len(counts) + 1)]
            undecided.stairs(counts, edges, label=label, **STYLES[line])
    undecided.set(xlim=(0, 1.01), xlabel="entropy of a token's shares, of ln M", ylabel="share of tokens")
    undecided.set_title("0: one primitive has it all; 1: all alike", fontsize=10, color=INK)
    _legend_below(undecided)
    shares = found.drawn["mean share in A"]
    used.bar(range(1, len(shares) + 1), shares, color=BLUE, edgecolor=INK, linewidth=0.6, label="mean share in A")
    used.axhline(1 / len(shares), color=INK, linestyle="--", linewidth=1.2, label="even share, 1/M")
    used.set(xlabel="primitive", ylabel="mean share", ylim=(0, 1.1 * max(shares)))
    used.set_title("how much each primitive is used", fontsize=10, color=INK)
    _legend_below(used)
    return figure


@picture
def _contribution(found: Diagnosis, against: Diagnosis | None) -> "Figure":
    figure, (sizes, energy) = panels(2, f"What {_name(found)} adds to the class token")
    shown = [(found, _name(found))]
    if against is not None and against.spectrum(ADDED) is not None:
        shown.append((against, f"against: {_name(against)}"))
    largest = 1.05 * max(max(which.drawn["contribution"]) for which, _ in shown)
    for which, label in shown:
        style = STYLES[0] if which is found else STYLES[2]
        values = which.drawn["contribution"]
        every = [1 / len(values)] * len(values)
        sizes.hist(values, bins=30, range=(0, largest), histtype="step", weights=every, label=label, **style)
    sizes.set(xlabel="‖CLS* − CLS‖ / ‖CLS‖", ylabel="share of images", xlim=(0, largest))
    sizes.set_title("its size, image by image", fontsize=10, color=INK)
    _legend_below(sizes)
    parts = {
        "CLS* − CLS": found.measures.get("contribution_shared"),
        "of the adapter": found.measures.get("adapter_shared"),
        "of the slots": found.measures.get("slots_shared"),
        "X_refined − X": found.measures.get("message_shared"),
    }
    bars = {name: shared for name, shared in parts.items() if shared is not None}
    same = list(bars.values())
    energy.barh(list(bars), same, color=GREY, edgecolor=INK, hatch="//", label="the same for all")
    rest = [1 - shared for shared in same]
    energy.barh(list(bars), rest, left=same, color="white", edgecolor=INK, label="differs")
    energy.invert_yaxis()
    energy.set(xlim=(0, 1), xlabel="share of its energy", ylim=(len(bars) - 0.4, -0.6))
    energy.grid(visible=False)
    _legend_below(energy)
    energy.set_title("how much of it is the same for all images", fontsize=10, color=INK)
    return figure


def entropy_and_accuracy(groups: Mapping[str, Sequence[Diagnosis]]) -> dict[str, bytes]:
    """File name → content: entropy of features and accuracy of many runs, by data set."""
    return _entropy_and_accuracy(groups).files("diagnose_runs")


@picture
def _entropy_and_accuracy(groups: Mapping[str, Sequence[Diagnosis]]) -> "Figure":
    """All runs of each data set: entropy of their features against All and New; one row of panels per data set."""
    figure, axes = panels(2, "Does entropy go with better discovery?", rows=len(groups))
    for row, (title, runs) in enumerate(groups.items()):
        kinds = {_name(run): place for place, run in reversed(list(enumerate(runs)))}  # in the order they come
        for panel, part in zip(axes[2 * row :], ("all", "new"), strict=False):
            for which, kind in enumerate(sorted(kinds, key=kinds.__getitem__)):
                points = [point for run in runs if _name(run) == kind for point in _point(run, part)]
                colour = (BLUE, INK, ORANGE, GREEN, PURPLE)[which % 5]
                fill = "none" if which % 2 else colour
                x, y = [entropy for entropy, _ in points], [accuracy for _, accuracy in points]
                panel.scatter(x, y, 26, marker=MARKERS[which % 10], facecolor=fill, edgecolor=colour, label=kind)
            panel.set(xlabel="von Neumann entropy of CLS*", ylabel=f"{part.capitalize()}, %")
            panel.set_title(title, fontsize=10, color=INK)
        axes[2 * row + 1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _point(run: Diagnosis, part: str) -> list[tuple[float, float]]:
    """Entropy and accuracy (%) of a run; none if its accuracy is not known."""
    entry, share = run.spectrum(FEATURE), (run.accuracy or {}).get(part)
    return [] if entry is None or share is None else [(entry.entropy, 100 * share)]
