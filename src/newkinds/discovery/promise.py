"""What a result can promise: which labels there were, and what was judged, calibrated and counted by them.

Every sentence about that, in the terminal, on the page and in the card, is made here, from the files of a run."""

from collections import Counter

from ..category_count import Count
from ..runs.directory import K_AUTO, RunDirectory
from ..runs.records import CandidateScore, PlanRecord, Reliability, read_count
from ..text import percent, plural
from .categories import Discovery

FEW = 50  # labelled images: with fewer, whatever they say is rough
Promises = list[tuple[str, str]]  # what it is about, and a sentence or two


def promises_of(discovery: Discovery) -> Promises:
    """About labels, the pipeline that found the categories, confidence, and the number of categories.

    >>> promises_of(Discovery.read("runs/photos"))
    [('labels', '12 labelled images of 3 known classes, 4 of each.'), ('pipeline', 'Not judged. The default: …'), …]
    """
    run = RunDirectory(discovery.run)
    labels = Counter(member.given_label for member in discovery.found_members if member.given_label is not None)
    estimate = read_count(run, K_AUTO) if run.path(f"{K_AUTO}.json").is_file() else None
    said = [
        ("labels", _about_labels(labels)),
        ("pipeline", _about_pipeline(run, _categories_judged(discovery), estimate is not None)),
        ("confidence", _about_confidence(Reliability.find(run), sum(labels.values()))),
        ("number", _about_given_number(run) if estimate is None else _about_number(estimate)),
    ]
    return [(about, sentence) for about, sentence in said if sentence]


def promises_text(discovery: Discovery) -> str:
    """The same for the terminal."""
    said = promises_of(discovery)
    width = max(len(about) for about, _ in said)
    return "\n".join(["what this can promise:", *(f"  {about.ljust(width)}  {text}" for about, text in said)])


def _about_labels(labels: Counter[str]) -> str:
    if not labels:
        return (
            "No image has a label: categories are groups of images that look alike, and nobody has said what is to "
            "count as one kind. Their names are yours to give."
        )
    fewest, most = min(labels.values()), max(labels.values())
    said = f"{plural(sum(labels.values()), 'labelled image')} of {plural(len(labels), 'known class')}"
    if len(labels) > 1:
        said += f", {fewest:,}{'' if fewest == most else f' to {most:,}'} of each"
    return f"{said}.{' How images of one class differ is not known.' if most == 1 else ''}"


def _categories_judged(discovery: Discovery) -> int:
    """How many were looked for: updates may have opened more since."""
    number = RunDirectory(discovery.run).settings().get("k")
    return number if isinstance(number, int) else len(discovery.found_categories)


def _about_pipeline(run: RunDirectory, categories: int, estimated: bool) -> str:
    """How the way to find so many categories was chosen; empty if it was named."""
    plan = PlanRecord.find(run)
    chosen = None if plan is None else next((one for one in plan.candidates if one.name == plan.chosen), None)
    if plan is None or chosen is None or not _is_of(chosen, run):
        return ""
    if chosen.score is None:
        # without splits nothing tells how even sizes are, and the ways that are tried believe that they are
        uneven = "If some kinds are many times larger than others, these may be split and small ones joined."
        return f"Not judged. {plan.why[:1].upper()}{plan.why[1:]}. {uneven}"
    error = "" if chosen.error is None else f" ± {percent(chosen.error)}"
    right = f"{percent(chosen.score)}{error} % of the hidden ones were found again"
    believed = _believed(plan, categories, estimated)
    return f"Chosen by cross-validation on your labels ({plan.splits} splits): {right}. {believed}"


def _believed(plan: PlanRecord, categories: int, estimated: bool) -> str:
    """That nothing judged the number: hidden labels are of known classes, so they cannot tell whether two new kinds
    share a category, or whether there is one for a new kind at all."""
    holds = f"That holds only if there are {categories} kinds"
    if estimated:
        return f"{holds}, as estimated: another number can cost far more."
    who = "you said" if "k" in plan.asked else "the data set says"
    cost = "if there are more, images of new kinds are put into known classes"
    return f"{holds}, known and new together, as {who}: {cost}."


def _is_of(candidate: CandidateScore, run: RunDirectory) -> bool:
    """Whether a run is what this candidate finds: `newkinds assign` may have replaced that."""
    settings = run.settings()
    return all(
        candidate.settings.get(section, {}).get(name) == settings[section].get(name)
        for section, name in (("assigner", "name"), ("embedding", "whiten"))
    )


def _about_confidence(reliability: Reliability | None, labelled: int) -> str:
    if reliability is None or not reliability.images:
        return "Not calibrated: it orders images from more to less certain, but 90 % does not mean 9 of 10."
    few = f", of which there are only {labelled}" if labelled < FEW else ""
    error = "" if reliability.error is None else f". There it is off by {percent(reliability.error)} points on average"
    return f"Calibrated on labelled images that were hidden in turn{few}{error}."


def _about_given_number(run: RunDirectory) -> str:
    """What the images themselves say beside the number that somebody gave; empty if nobody looked."""
    plan = PlanRecord.find(run)
    seen = None if plan is None else plan.number_seen
    if seen is None:
        return ""
    look = f"look like {seen.looks_like}, known and new together"
    if seen.fits:
        return f"You said {seen.given}, which fits the images: they {look}."
    advice = "look at the categories, or have the number estimated, without --k, into another --out"
    return f"You said {seen.given}, but the images {look}: {advice}."


def _about_number(estimate: Count) -> str:
    by = "the shape of the data alone" if estimate.method == "shape" else "the labelled images"
    between = "" if estimate.low is None else f": between {estimate.low} and {estimate.high}"
    return f"{'A guess' if estimate.sure == 'unsure' else 'An estimate'} from {by}{between}."
