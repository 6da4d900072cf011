"""What a diagnosis says: spectra, figures about the organizer, accuracy; as tables and as `diagnose.json`."""

from dataclasses import asdict, dataclass
from typing import Any

from ...text import percent, text_table

SAMPLE, IMAGE = "sample", "image"
CLS, FEATURE = "CLS: class tokens of the backbone", "CLS*: image features, what the method sees"
CENTRED_CLS, CENTRED = "CLS without its mean", "CLS* without its mean"
ADDED, EMBEDDING = "CLS* − CLS: the organizer's contribution", "embedding: where categories are found"
X, REFINED = "X: patch tokens", "X_refined: rewritten patch tokens"
MIXTURE, DECODED = "A·MLP₁(P2): mixture of primitives", "A·D: mixture of decoded primitives"

ABOUT = {  # in the order of the table; the organizer's own scalars and gates come after these
    "contribution": "‖CLS* − CLS‖ / ‖CLS‖: what the organizer adds, means over images",
    "contribution_shared": "share of its energy that is the same for all images",
    "contribution_own": "the rest of it, against what differs between class tokens (root mean squares)",
    "adapter": "what the adapter of the class token adds, likewise: ‖·‖ / ‖CLS‖",
    "adapter_shared": "share of its energy that is the same for all images",
    "slots": "what primitives (or cells) add, likewise: ‖·‖ / ‖CLS‖",
    "slots_shared": "share of its energy that is the same for all images",
    "message": "‖X_refined − X‖ / ‖X‖ (root mean squares over tokens)",
    "message_shared": "share of its energy that is the same for all tokens of all images",
    "primitives": "M: primitives",
    "field_entropy": "entropy of a token's shares A, of ln M (1: even, 0: decided)",
    "field_spread": "entropy of a primitive's column of A over tokens, of ln N (1: everywhere)",
    "field_overlap": "overlap of two primitives' columns of A: Σ min, columns scaled to sum 1 (1: same place)",
    "use_entropy": "entropy of the primitives' mean shares, of ln M (1: all used alike)",
    "dead": "dead primitives: mean share below a tenth of 1/M",
    "winless": "primitives that have the largest share in no token",
    "duplicate_fields": "duplicates: share follows that of an earlier primitive (correlation above 0.95)",
    "duplicate_states": "duplicates: P2 points where that of an earlier primitive does (cosine above 0.95)",
    "prior_spread": "entropy of a primitive's column of A_prior over tokens, of ln N (1: everywhere)",
    "prior_entropy": "entropy of a token's shares in A_prior, rows scaled to sum 1, of ln M",
    "data_entropy": "entropy of a token's shares in A_data, of ln M",
    "disagreement": "Jensen-Shannon divergence of A_prior (rows scaled to sum 1) and A_data, of ln 2 (0: agree)",
    "prior_to_field": "the same of A_prior and A (0: the prior decides alone)",
    "data_to_field": "the same of A_data and A",
    "codebook_shift": "‖Φ‖ / ‖P_base‖: the codebook's shift, mean over images",
    "codebook_own": "the same without the mean shift: what is the image's own",
    "mixture_rank": "exact rank of the mixture of primitives, largest of all images (M bounds it)",
}


@dataclass(frozen=True)
class Spectrum:
    """How many directions a matrix uses; if there is one matrix per image, means over the images of the sample."""

    matrix: str
    rows: int
    columns: int
    per: str  # SAMPLE: one matrix of the rows of all images; IMAGE: one for each image
    entropy: float
    rank99: float
    effective_rank: float
    shares: list[float]  # eigenvalues, largest first


@dataclass(frozen=True)
class Diagnosis:
    """All that was measured in a run."""

    run: str
    data: str
    split: str
    backbone: str
    method: str
    organizer: str
    seed: int
    model: str  # checksum of its file
    requested: int  # images, of which there may be fewer
    images: int
    of: int
    accuracy: dict[str, float | None] | None  # all, old, new; None: true classes are not known
    spectra: list[Spectrum]
    measures: dict[str, float | None]  # `ABOUT` says what they are
    drawn: dict[str, list[float]]  # what only figures show
    note: str = ""

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> "Diagnosis":
        return cls(**{**content, "spectra": [Spectrum(**entry) for entry in content["spectra"]]})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def spectrum(self, matrix: str, per: str = SAMPLE) -> Spectrum | None:
        return next((entry for entry in self.spectra if (entry.matrix, entry.per) == (matrix, per)), None)


def diagnosis_text(found: Diagnosis, against: Diagnosis | None = None) -> str:
    """Tables for the terminal, the other run's figures beside the first one's."""
    both = [found] if against is None else [found, against]
    names = [""] if against is None else ["", "against: "]
    spectra_of: dict[tuple[str, str], None] = {(s.matrix, s.per): None for each in both for s in each.spectra}
    rows = []
    for matrix, per in spectra_of:
        entries = [each.spectrum(matrix, per) for each in both]
        shape = next(f"{entry.rows:,} × {entry.columns:,}" for entry in entries if entry)
        rows.append([matrix, shape, per, *(cell for entry in entries for cell in _figures(entry))])
    header = [f"{name}{column}" for name in names for column in ("entropy", "rank99", "eff. rank")]
    blocks = [_title(each, name) for each, name in zip(both, names, strict=True)]
    blocks.append(text_table(["matrix", "rows × columns", "per", *header], rows))
    measured = {name: None for each in both for name in each.measures}
    ordered = [name for name in ABOUT if name in measured] + [name for name in measured if name not in ABOUT]
    lines = [[ABOUT.get(name, name), *(_format(each.measures.get(name)) for each in both)] for name in ordered]
    if lines:
        blocks.append(text_table(["measured on the sample", *(f"{name}value" for name in names)], lines))
    judged = [
        [f"{name}{each.run}", *(percent(each.accuracy[part]) for part in ("all", "old", "new"))]
        for each, name in zip(both, names, strict=True) if each.accuracy
    ]  # fmt: skip
    if judged:
        blocks.append(text_table(["accuracy on unlabelled images, %", "All", "Old", "New"], judged))
    notes = dict.fromkeys(f"{each.run}: {each.note}" for each in both if each.note)
    return "\n\n".join([*blocks, READING, *notes])


READING = (
    "Entropy: −Σ λ ln λ of the eigenvalues λ of ZᵀZ/n, rows of Z scaled to unit length (von Neumann); at most the "
    "logarithm of the smaller side.\nrank99: eigenvalues that hold 99 % of their sum; eff. rank: exp(entropy). "
    "Per sample: the rows of all images are one matrix; per image: one matrix for each, and the mean of the figures."
)


def _title(found: Diagnosis, name: str) -> str:
    what = f"{found.method} with organizer {found.organizer}, seed {found.seed}, on {found.data}, {found.backbone}"
    sample = "all" if found.images == found.of else f"a sample (seed 0) of {found.images:,} of"
    return f"{name}{found.run}: {what}; {sample} {found.of:,} images"


def _figures(entry: Spectrum | None) -> list[str]:
    if entry is None:
        return ["–"] * 3
    rank = f"{entry.rank99:.0f}" if entry.per == SAMPLE else f"{entry.rank99:.1f}"
    return [f"{entry.entropy:.3f}", rank, f"{entry.effective_rank:.1f}"]


def _format(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:d}" if isinstance(value, int) else f"{value:.4f}"
