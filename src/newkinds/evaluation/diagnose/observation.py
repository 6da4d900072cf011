"""What was seen while a sample of images went through an encoder: small things are kept, of tokens only sums."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...encoders.organizers.adapter import Adapter
from ...encoders.organizers.cpf import CPF, Field
from ...encoders.organizers.cpf_parts import CPFParts
from ...encoders.organizers.slot_maps import SlotMaps
from ...encoders.tokens import Encoded, Tokens
from ...training.model import Model
from . import field_measures as fields
from .result import (
    ADDED,
    CENTRED,
    CENTRED_CLS,
    CLS,
    DECODED,
    EMBEDDING,
    FEATURE,
    IMAGE,
    MIXTURE,
    REFINED,
    SAMPLE,
    Spectrum,
    X,
)  # fmt: skip
from .spectra import Pooled, entropies, ranks_at, spectra

BINS = 40  # of the histograms in figures
EXACT = 1e-13  # eigenvalues below this, of the largest, are rounding: mixtures are computed in float64
STATES = {
    "codebook": "P: the image's codebook",
    "pooled": "P0: pooled primitives",
    "updated": "P1: updated primitives",
    "primitives": "P2: consolidated primitives",
}


class Observation:
    """`add` what each batch went through, then ask for `spectra`, `measures` and what is `drawn`."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.organizer = model.encoder.organizer
        self.cpf = self.organizer if isinstance(self.organizer, CPF | CPFParts) else None
        self.images = self.tokens_per_image = 0
        self._kept: dict[str, list[Tensor]] = {}  # one tensor per batch
        self._pooled: dict[str, Pooled] = {}  # matrix → all of its rows
        self._of_images: dict[str, list[Tensor]] = {}  # matrix → its spectra, one per image
        self._message = _Energy(model.encoder.dim)
        self._tokens = _Energy(model.encoder.dim)

    @torch.inference_mode()
    def add(self, tokens: Tokens, encoded: Encoded) -> None:
        self.images += len(tokens.cls)
        self.tokens_per_image = tokens.patches.shape[1]
        self._keep("cls", tokens.cls)
        self._keep("feature", encoded.feature)
        if encoded.field is not None:
            self._keep("assignment", encoded.field)
        if isinstance(adapter := getattr(self.organizer, "adapter", None), Adapter):
            self._keep("adapter", adapter(tokens.cls) - tokens.cls)
        if isinstance(maps := getattr(self.organizer, "maps", None), SlotMaps):
            self._keep("slots", maps(self.organizer.slots(tokens)).sum(dim=1))
        if self.tokens_per_image:
            self._matrices(X, tokens.patches)
            self._tokens.add(tokens.patches)
            if encoded.tokens is not None and not torch.equal(encoded.tokens, tokens.patches):
                self._matrices(REFINED, encoded.tokens)
                self._message.add(encoded.tokens - tokens.patches)
            if self.cpf is not None:
                self._add_field(self.cpf, tokens)

    def _add_field(self, cpf: CPF | CPFParts, tokens: Tokens) -> None:
        found = cpf(tokens.cls, tokens.patches, return_field=True)
        assert isinstance(found, Field)
        for name in ("prior", "data", *STATES):
            self._keep(name, getattr(found, name))
        if isinstance(cpf, CPFParts):
            mixture = DECODED
            states = cpf.maps(found.primitives)  # (B, M, D)
        else:
            mixture = MIXTURE
            states = F.gelu(cpf.mlp1(found.primitives))  # (B, M, D)
        self._matrices(mixture, found.assignment.double() @ states.double())  # (B, N, D)

    def _keep(self, name: str, tensor: Tensor) -> None:
        self._kept.setdefault(name, []).append(tensor.float().cpu())

    def _matrices(self, name: str, matrices: Tensor) -> None:
        """Matrices (B, N, D), each alone and all of their rows together."""
        if bool(matrices.any(dim=2).all()):  # a row of zeros has no direction
            self._of_images.setdefault(name, []).append(spectra(matrices))
            self._pooled.setdefault(name, Pooled(matrices.shape[2])).add(matrices)

    def kept(self, name: str) -> Tensor | None:
        """What was kept of all images."""
        return torch.cat(self._kept[name]) if name in self._kept else None

    def _all(self, name: str) -> Tensor:
        return torch.cat(self._kept[name])

    def spectra(self) -> list[Spectrum]:
        """Of image features, of tokens before and after rewriting, of what CPF mixes and of its primitives."""
        cls, feature = self._all("cls"), self._all("feature")
        embedding = self.model.embedding(feature.to(self.model.device)).detach().float().cpu()
        of_sample = {CLS: cls, CENTRED_CLS: cls - cls.mean(dim=0), ADDED: feature - cls, EMBEDDING: embedding}
        if embedding.shape == feature.shape and torch.allclose(embedding, F.normalize(feature, dim=1), atol=1e-5):
            del of_sample[EMBEDDING]  # the features themselves
        found = [*of_features(feature), *_of_rows(of_sample)]
        for name, pooled in self._pooled.items():
            dim = len(pooled.sum)
            found.append(_spectrum(name, torch.cat(self._of_images[name]), (self.tokens_per_image, dim), IMAGE))
            found.append(_spectrum(name, pooled.spectrum()[None], (pooled.rows, dim), SAMPLE))
        kept = {label: states for name, label in STATES.items() if (states := self.kept(name)) is not None}
        return found + [_spectrum(label, spectra(z), z.shape[1:], IMAGE) for label, z in kept.items()]

    def measures(self) -> dict[str, float | None]:
        """By the names in `result.ABOUT`, and the organizer's scalars and gates by their own."""
        return {**self._contribution(), **self._rewriting(), **self._field(), **self._cpf(), **self._learned()}

    def _contribution(self) -> dict[str, float | None]:
        cls, feature = self._all("cls").double(), self._all("feature").double()
        added = feature - cls
        found: dict[str, float | None] = {
            "contribution": _ratio(_length(added), _length(cls)),
            "contribution_shared": fields.same_for_all(added),
            "contribution_own": _ratio(_rms(added - added.mean(dim=0)), _rms(cls - cls.mean(dim=0))),
        }
        for name in ("adapter", "slots"):
            if (part := self.kept(name)) is not None:
                found[name] = _ratio(_length(part), _length(cls))
                found[f"{name}_shared"] = fields.same_for_all(part)
        return found

    def _rewriting(self) -> dict[str, float | None]:
        if not self._message.rows:
            return {}
        size = _ratio(self._message.rms, self._tokens.rms)
        return {"message": size, "message_shared": self._message.shared}

    def _field(self) -> dict[str, float | None]:
        shares = self.kept("assignment")
        if shares is None:
            return {}
        return {
            "primitives": shares.shape[2],
            "field_entropy": float(fields.token_entropy(shares).mean()),
            "field_spread": float(fields.spread_over_tokens(shares).mean()),
            "field_overlap": fields.overlap(shares),
            "use_entropy": fields.use_entropy(shares),
            "dead": fields.dead(shares),
            "winless": fields.winless(shares),
            "duplicate_fields": fields.duplicate_fields(shares),
        }

    def _cpf(self) -> dict[str, float | None]:
        if self.cpf is None or not self.tokens_per_image:
            return {}
        prior, data, shares = (self._all(name) for name in ("prior", "data", "assignment"))
        alone = fields.over_primitives(prior)
        base = self.cpf.base.detach().float().cpu()
        shift = (self._all("codebook") - base).flatten(1)  # (n, M·D)
        found: dict[str, float | None] = {
            "duplicate_states": fields.duplicate_states(self._all("primitives")),
            "prior_spread": float(fields.spread_over_tokens(prior).mean()),
            "prior_entropy": float(fields.token_entropy(alone).mean()),
            "data_entropy": float(fields.token_entropy(data).mean()),
            "disagreement": fields.disagreement(alone, data),
            "prior_to_field": fields.disagreement(alone, shares),
            "data_to_field": fields.disagreement(data, shares),
            "codebook_shift": _ratio(_length(shift), float(base.norm())),
            "codebook_own": _ratio(_length(shift - shift.mean(dim=0)), float(base.norm())),
        }
        for mixture in {MIXTURE, DECODED} & self._of_images.keys():
            values = torch.cat(self._of_images[mixture])  # (n, r)
            found["mixture_rank"] = int((values > EXACT * values[:, :1]).sum(dim=1).max())
        return found

    def _learned(self) -> dict[str, float | None]:
        """Scalars such as α and γ, and the mean and mean size of gates."""
        found: dict[str, float | None] = {}
        learned = {name for name, _ in self.organizer.named_parameters()}
        for name, tensor in self.organizer.state_dict().items():
            if tensor.numel() == 1:
                found[name if name in learned else f"{name} (fixed)"] = float(tensor)
            elif "gate" in name:
                found |= {f"{name}, mean": float(tensor.mean()), f"{name}, mean size": float(tensor.abs().mean())}
        return found

    def drawn(self) -> dict[str, list[float]]:
        """Histograms of the entropy of tokens' shares, the use of each primitive, and contributions image by image."""
        cls, prior = self._all("cls"), self.kept("prior")
        size = (self._all("feature") - cls).norm(dim=1) / cls.norm(dim=1).clamp(min=1e-12)
        shown = {"contribution": size.tolist()}
        parts = {
            "A": self.kept("assignment"),
            "A_prior": None if prior is None else fields.over_primitives(prior),
            "A_data": self.kept("data"),
        }
        for name, shares in parts.items():
            if shares is not None:
                counts = torch.histc(fields.token_entropy(shares).clamp(0, 1), BINS, 0, 1)
                shown[f"entropy of {name}"] = (counts / counts.sum()).tolist()
                shown[f"mean share in {name}"] = shares.mean(dim=(0, 1)).tolist()
        return shown


class _Energy:
    """Mean and mean square of many rows, which are added batch by batch."""

    def __init__(self, dim: int) -> None:
        self.rows = 0
        self.energy = 0.0
        self.sum = torch.zeros(dim, dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        flat = rows.double().cpu().flatten(0, -2)
        self.rows += len(flat)
        self.energy += float(flat.square().sum())
        self.sum += flat.sum(dim=0)

    @property
    def rms(self) -> float:
        return (self.energy / self.rows) ** 0.5

    @property
    def shared(self) -> float | None:
        """The share of the energy that is in the mean row."""
        return _ratio(float((self.sum / self.rows).square().sum()), self.energy / self.rows)


def of_features(feature: Tensor) -> list[Spectrum]:
    """Of the features (n, D) of many images, with and without their mean."""
    return _of_rows({FEATURE: feature, CENTRED: feature - feature.mean(dim=0)})


def _of_rows(matrices: Mapping[str, Tensor]) -> list[Spectrum]:
    """Of matrices with one row per image; rows of zeros, which have no direction, are left out."""
    directed = {name: rows[rows.any(dim=1)] for name, rows in matrices.items()}
    return [_spectrum(name, spectra(rows[None]), rows.shape, SAMPLE) for name, rows in directed.items() if len(rows)]


def _spectrum(matrix: str, shares: Tensor, shape: Sequence[int], per: str) -> Spectrum:
    """Of spectra (images, r), or of one (1, r)."""
    entropy, ranks = entropies(shares), ranks_at(shares).double()
    means = (float(entropy.mean()), float(ranks.mean()), float(entropy.exp().mean()))
    return Spectrum(matrix, shape[0], shape[1], per, *means, shares.mean(dim=0).tolist())


def _length(rows: Tensor) -> float:
    return float(rows.norm(dim=1).mean())


def _rms(rows: Tensor) -> float:
    return float(rows.square().sum(dim=1).mean().sqrt())


def _ratio(one: float, other: float) -> float | None:
    return one / other if other else None
