"""Encoder and method together: what a run trains, saves and predicts with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..console import track
from ..data.loader import evaluation_batches, seed_for
from ..data.table import Skipped, Table
from ..encoders.backbones import build_backbone
from ..encoders.encoder import Encoder
from ..encoders.organizers import ORGANIZERS
from ..errors import NewkindsError
from ..files import write_whole
from ..methods import METHODS, Method
from ..runs.config import Config
from .cache import TokenCache
from .device import choose_workers


@dataclass(frozen=True)
class Embedded:
    """Features of the images of a table that could be read."""

    features: Tensor  # (n, D) float32 on the CPU
    rows: list[int]  # which rows of the table they are
    skipped: list[Skipped]  # the others, with the reason


@dataclass(frozen=True)
class Fields:
    """Where each primitive is active in a few images."""

    views: np.ndarray  # (n, H, W, 3) uint8, what the encoder saw
    shares: np.ndarray  # (n, N, M)
    grid: tuple[int, int]


class Model(nn.Module):
    """A trained (or trainable) discoverer. Categories 0..C-1 are the known classes, the others are new."""

    def __init__(self, encoder: Encoder, method: Method, known: list[str], k: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.method = method
        self.known = known
        self.k = k
        self.cache: TokenCache | None = None  # the tokens of some images, to embed them without looking at them again

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def components(self) -> dict[str, nn.Module]:
        """The parts whose parameters are counted and trained separately."""
        return {"backbone": self.encoder.backbone, "organizer": self.encoder.organizer, "head": self.method}

    def embed(self, table: Table, batch_size: int = 64, workers: int = -1) -> Embedded:
        """The feature of every image; unreadable images are passed over and listed."""
        return embed(self.encoder, table, self.device, batch_size, workers, self.cache)

    @torch.inference_mode()
    def fields(self, table: Table, rows: list[int]) -> Fields | None:
        """The assignment fields of a few images; None where the organizer has none."""
        self.eval()
        preprocessing = self.encoder.backbone.preprocessing
        views = torch.stack([preprocessing.centre_view(preprocessing.resize(table.open(row))) for row in rows])
        encoded = self.encoder(self.encoder.backbone.ready(views.to(self.device)), details=True)
        if encoded.field is None or encoded.grid is None:
            return None
        return Fields(views.permute(0, 2, 3, 1).numpy(), encoded.field.float().cpu().numpy(), encoded.grid)

    def save(self, path: Path) -> None:
        """All weights, frozen ones too: a run needs no other file to be used."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        # one entry: safetensors writes several in a random order, and equal models must be equal files
        write_whole(path, save(tensors, {"newkinds": json.dumps({"known": self.known, "k": self.k})}))


@torch.inference_mode()
def embed(
    encoder: Encoder,
    table: Table,
    device: torch.device,
    batch_size: int = 64,
    workers: int = -1,
    cache: TokenCache | None = None,
) -> Embedded:
    """The feature of every image of a table, by an encoder that may be trained or not."""
    encoder.to(device).eval()
    if cache is not None and cache.holds(table):
        places = cache.rows_of(table)
        batches = [places[start : start + batch_size] for start in range(0, len(places), batch_size)]
        features = [
            encoder(encoder.backbone.ready(cache.take(some, np.zeros_like(some)).to(device))).feature.float().cpu()
            for some in track(batches, "embedding images", total=len(batches))
        ]
        return Embedded(torch.cat(features), list(range(len(table))), [])
    loader = evaluation_batches(table, encoder.backbone.preprocessing, batch_size, choose_workers(workers, device))
    features, rows, skipped = [], [], []
    for batch in track(loader, "embedding images", total=len(loader)):
        views = []
        for row, view in batch:
            if isinstance(view, str):
                skipped.append(Skipped(table.paths[row], view))
            else:
                views.append(view)
                rows.append(row)
        if views:
            images = encoder.backbone.ready(torch.stack(views).to(device))
            features.append(encoder(images).feature.float().cpu())
    gathered = torch.cat(features) if features else torch.empty(0, encoder.dim)
    return Embedded(gathered, rows, skipped)


def build_model(config: Config, known: list[str], k: int, load_weights: bool = True) -> Model:
    """The model a config describes, with the same random start for the same seed.

    The head has a seed of its own, so that runs with and without an organizer start from the same head.
    """
    seed = config.train.seed
    backbone = build_backbone(**config.backbone, load_weights=load_weights)
    torch.manual_seed(seed_for("organizer", seed))
    organizer = ORGANIZERS[config.organizer["name"]](backbone.dim, **_settings(config.organizer))
    torch.manual_seed(seed_for("head", seed))
    method_class = METHODS[config.method["name"]]
    method = method_class(method_class.Config(**_settings(config.method)), backbone.dim, len(known), k)
    return Model(Encoder(backbone, organizer), method, known, k)


def load_model(config: Config, path: Path, device: torch.device) -> Model:
    """The model of a run directory, from its own files alone."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {})["newkinds"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        known, k = list(metadata["known"]), int(metadata["k"])
    except FileNotFoundError:
        raise NewkindsError(f"there is no {path}: training has not finished. Run the same command again.") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise NewkindsError(f"{path} is damaged or not a newkinds model: {error}.") from None
    model = build_model(config, known, k, load_weights=False)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = " ".join(str(error).split("\n")[1:2]).strip()
        raise NewkindsError(
            f"{path} does not fit {path.parent / 'config.yaml'} (another architecture?): {first}"
        ) from None
    return model.to(device).eval()


def _settings(section: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name != "name"}
