"""Self-supervise the bundled tiny ViT on unlabelled creatures and write its weights and its card.

    python scripts/pretrain_tiny.py --cache /path/to/cache

Creatures of the `pretraining` pool, whose kinds are disjoint from every evaluated one, are drawn once into the
cache. Two altered views of an image must find each other among the views of the other images of the batch (InfoNCE).
At first the transformer's blocks sleep and only the convolutions learn, which they do quickly and cheaply; then the
blocks wake up, starting from the identity, and the class token and the mean of the patch tokens pass one projector
and must find each other too, so that both live in one space. No label is used; the k-NN figures only watch.

To resume from the last checkpoint in the cache, rerun the same command.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import platform
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while waiting starve a shared machine

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from newkinds import files
from newkinds.console import console, progress_bar
from newkinds.data.creatures import drawing as creatures
from newkinds.encoders.backbones import TINY_MEAN, TINY_SIZE, TINY_STD, tiny_vit

MEAN, STD, SIDE = TINY_MEAN[0], TINY_STD[0], TINY_SIZE
WEIGHTS = Path(__file__).resolve().parents[1] / "src" / "newkinds" / "encoders" / "bundled"
HELD_OUT_SEED = 1000  # of the creatures the k-NN figures are measured on; evaluated data sets have other seeds


# ---------------------------------------------------------------------------------------------------- images
def pretraining_images(cache: Path, kinds: int, per_kind: int, seed: int) -> np.ndarray:
    """Unlabelled images (n, 73, 73, 3) uint8, drawn once."""
    file = cache / f"creatures-{kinds}x{per_kind}-seed{seed}.npy"
    if not file.exists():
        print(f"drawing {kinds * per_kind:,} images into {file} ...", flush=True)
        drawn = creatures.make(kinds, per_kind, seed, pool="pretraining")
        content = io.BytesIO()
        np.save(content, drawn.images)
        files.write_whole(file, content.getvalue())
    return np.load(file, mmap_mode="r")


def to_tensor(images: np.ndarray) -> Tensor:
    """(b, s, s, 3) uint8 to (b, 3, s, s) in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 255


def altered(images: Tensor, random: torch.Generator) -> Tensor:
    """A random view (b, 3, 64, 64), normalised, of each image (b, 3, s, s) in [0, 1]."""
    return ((repainted(recropped(images, random), random) - MEAN) / STD).contiguous()


def recropped(images: Tensor, random: torch.Generator) -> Tensor:
    """Crop, turn and mirror each image on its own, by one resampling."""
    count = len(images)
    area = torch.empty(count).uniform_(0.5, 1.0, generator=random)
    aspect = torch.empty(count).uniform_(-0.2, 0.2, generator=random).exp()
    angle = torch.empty(count).normal_(0, 0.25, generator=random)
    mirror = torch.randint(0, 2, (count,), generator=random) * 2.0 - 1
    width, height = (area * aspect).sqrt(), (area / aspect).sqrt()
    slack = (1 - torch.stack([width, height], 1)).clamp_min(0)
    centre = slack * torch.empty(count, 2).uniform_(-1, 1, generator=random)
    cos, sin = angle.cos(), angle.sin()
    affine = torch.stack(
        [
            torch.stack([width * cos * mirror, -height * sin, centre[:, 0]], 1),
            torch.stack([width * sin * mirror, height * cos, centre[:, 1]], 1),
        ],
        dim=1,
    )  # (b, 2, 3)
    grid = F.affine_grid(affine, [count, 3, SIDE, SIDE], align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def repainted(views: Tensor, random: torch.Generator) -> Tensor:
    """Swap and mix colour channels, change contrast and light, and lay a faint cloud over each view."""
    count = len(views)
    order = torch.rand(count, 3, generator=random).argsort(1)
    mix = F.one_hot(order, 3).float() + 0.25 * torch.randn(count, 3, 3, generator=random)
    mix = mix / mix.sum(2, keepdim=True).clamp_min(0.3)
    views = torch.einsum("bij,bjhw->bihw", mix, views)
    negative = (torch.rand(count, 1, 1, 1, generator=random) < 0.2).float()
    views = views * (1 - 2 * negative) + negative
    contrast = torch.empty(count, 3, 1, 1).uniform_(0.6, 1.4, generator=random)
    light = torch.empty(count, 3, 1, 1).uniform_(-0.2, 0.2, generator=random)
    middle = views.mean((2, 3), keepdim=True)
    cloud = 0.12 * torch.randn(count, 3, 6, 6, generator=random)
    cloud = F.interpolate(cloud, SIDE, mode="bilinear")
    return ((views - middle) * contrast + middle + light + cloud).clamp(0, 1)


# -------------------------------------------------------------------------------------------------- learning
class Projector(nn.Sequential):
    """Shared by class token and pooled patches; thrown away after training."""

    def __init__(self, dim: int = 96, hidden: int = 512, out: int = 128) -> None:
        super().__init__(nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, out))


def put_to_sleep(model: VisionTransformer) -> None:
    """Make every block the identity: what it adds starts at zero."""
    for name, parameter in model.named_parameters():
        if name.endswith(("attn.proj.weight", "mlp.fc2.weight")):
            nn.init.zeros_(parameter)


def find_each_other(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """InfoNCE between two sets of rows (n, e): row i of one must find row i of the other, both ways."""
    logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / temperature
    target = torch.arange(len(a))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def loss_asleep(model: VisionTransformer, projector: Projector, views: Tensor, temperature: float) -> Tensor:
    """Pooled patches, past the sleeping blocks; views (2b, 3, 64, 64) are view-major."""
    patches = model.norm(model._pos_embed(model.patch_embed(views)))[:, 1:]  # (2b, 64, d)
    pool_1, pool_2 = projector(patches.mean(1)).chunk(2)
    return find_each_other(pool_1, pool_2, temperature)


def loss_awake(model: VisionTransformer, projector: Projector, views: Tensor, temperature: float) -> Tensor:
    """Class with class, pooled with pooled, and each with the other of the other view."""
    tokens = model.forward_features(views)  # (2b, 1 + 64, d)
    cls_1, cls_2, pool_1, pool_2 = projector(torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)])).chunk(4)
    pairs = ((cls_1, cls_2), (pool_1, pool_2), (cls_1, pool_2), (pool_1, cls_2))
    return torch.stack([find_each_other(a, b, temperature) for a, b in pairs]).mean()


# -------------------------------------------------------------------------------------------------- watching
@dataclass(frozen=True)
class Figures:
    """Leave-one-out nearest-neighbour accuracy (%) of one feature."""

    one_nn: float
    five_nn: float


def knn(features: np.ndarray, labels: np.ndarray) -> Figures:
    """Leave-one-out nearest neighbours by cosine similarity."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    nearest = labels[np.argsort(-similarity, axis=1)[:, :5]]  # (n, 5)
    votes = np.stack([(nearest == label).sum(1) for label in range(labels.max() + 1)], axis=1)
    votes = votes + 0.5 * np.eye(votes.shape[1])[nearest[:, 0]]  # the nearest one settles ties
    one, five = nearest[:, 0] == labels, votes.argmax(1) == labels
    return Figures(100 * float(one.mean()), 100 * float(five.mean()))


@torch.no_grad()
def measure(model: VisionTransformer, held_out: creatures.Creatures) -> dict[str, Figures]:
    """k-NN of class token, pooled patches and their sum on centre crops."""
    model.eval()
    margin = (held_out.images.shape[1] - SIDE) // 2
    images = held_out.images[:, margin : margin + SIDE, margin : margin + SIDE]
    chunks = [(to_tensor(chunk) - MEAN) / STD for chunk in np.array_split(images, 8)]
    tokens = torch.cat([model.forward_features(chunk) for chunk in chunks])  # (n, 1 + 64, d)
    cls, pooled = tokens[:, 0].numpy(), tokens[:, 1:].mean(1).numpy()
    features = {"class token": cls, "mean of patches": pooled, "class token + mean": cls + pooled}
    return {name: knn(feature, held_out.categories) for name, feature in features.items()}


def pixels_knn(held_out: creatures.Creatures) -> Figures:
    """The same measure on centred raw pixels."""
    pixels = held_out.images.reshape(len(held_out.images), -1).astype(np.float32)
    return knn(pixels - pixels.mean(0), held_out.categories)


# --------------------------------------------------------------------------------------------- the whole job
class Training:
    """Model, projector and optimiser with the step they are at; every step draws from its own seed."""

    def __init__(self, images: np.ndarray, arguments: argparse.Namespace) -> None:
        torch.manual_seed(arguments.seed)
        self.images, self.arguments = images, arguments
        self.model, self.projector = tiny_vit(), Projector()
        put_to_sleep(self.model)
        self.model = self.model.to(memory_format=torch.channels_last)  # 1.7 times as fast on the CPU
        self.step, self.seconds, self.loss = 0, 0.0, math.nan
        parameters = [*self.model.parameters(), *self.projector.parameters()]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.05},
                {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
            ],
            betas=(0.9, 0.98),
        )

    def learning_rate(self) -> float:
        """Up within 30 steps, when training starts and again when the blocks wake; a cosine down over all steps."""
        chosen = self.arguments
        since = self.step - (chosen.asleep if self.step >= chosen.asleep else 0)
        return chosen.lr * min(1.0, (since + 1) / 30) * (1 + math.cos(math.pi * self.step / chosen.steps)) / 2

    def advance(self) -> None:
        """One step."""
        begin, chosen = time.monotonic(), self.arguments
        random = torch.Generator().manual_seed(chosen.seed * 1_000_003 + self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate()
        rows = torch.randint(len(self.images), (chosen.batch,), generator=random)
        images = to_tensor(self.images[np.sort(rows.numpy())])
        views = torch.cat([altered(images, random), altered(images, random)])  # (2b, 3, 64, 64), view-major
        views = views.contiguous(memory_format=torch.channels_last)
        loss_of = loss_asleep if self.step < chosen.asleep else loss_awake
        loss = loss_of(self.model.train(), self.projector, views, chosen.temperature)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.step += 1
        self.loss = loss.item() if math.isnan(self.loss) else 0.95 * self.loss + 0.05 * loss.item()
        self.seconds += time.monotonic() - begin

    def save(self, file: Path) -> None:
        """Everything needed to resume."""
        state = {
            "model": self.model.state_dict(),
            "projector": self.projector.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "loss": self.loss,
            "settings": settings(self.arguments),
        }
        content = io.BytesIO()
        torch.save(state, content)
        files.write_whole(file, content.getvalue())

    def resume(self, file: Path) -> None:
        """Go on from `file`, unless it belongs to another run."""
        if not file.exists():
            return
        state = torch.load(file, weights_only=True)
        if state["settings"] != settings(self.arguments):
            raise SystemExit(f"{file} is of another run, {state['settings']}: choose another --cache or delete it")
        self.model.load_state_dict(state["model"])
        self.projector.load_state_dict(state["projector"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.seconds, self.loss = state["step"], state["seconds"], state["loss"]
        print(f"resuming from step {self.step}", flush=True)


def settings(arguments: argparse.Namespace) -> dict[str, int | float]:
    """What decides the outcome, as opposed to where and how often files are written."""
    return {name: getattr(arguments, name) for name in DEFAULTS}


def write_weights(training: Training, folder: Path) -> None:
    """tiny.safetensors: float32, timm's names, with the normalisation next to them."""
    tensors = {name: tensor.contiguous() for name, tensor in training.model.state_dict().items()}
    metadata = {
        "mean": ",".join(map(str, TINY_MEAN)),
        "std": ",".join(map(str, TINY_STD)),
        "step": str(training.step),
        "format": "pt",
    }
    files.write_whole(folder / "tiny.safetensors", save(tensors, metadata))


CARD = """# tiny: the bundled backbone

A small vision transformer that knows creatures (`newkinds.data.creatures.drawing`) and nothing else. It lets the
demo and the tests run anywhere without a download; for photographs, use a backbone trained on photographs.

- **Architecture**: `newkinds.encoders.backbones.tiny_vit`: timm's `VisionTransformer` (4 blocks of width 96, 3 heads,
  class token) on timm's `ConvStem` (four 3 × 3 convolutions, patches of 8 pixels); {parameters:,} parameters.
- **File**: `tiny.safetensors`, float32, timm's key names.
- **Input**: 64 × 64 RGB in [0, 1], every channel normalised with mean {mean} and standard deviation {std}.
- **Trained on**: {images:,} unlabelled creatures, {per_kind} of each of {kinds} kinds of the `pretraining` pool. The
  `evaluated` pool, from which every evaluated data set comes, shares parts with them but no composition.
- **How**: no labels; InfoNCE (temperature {temperature}) between two altered views of an image (crop, turn,
  mirror, colours mixed, clouds). The first {asleep:,} steps train the convolutions alone; then the blocks join, and the
  class token and the mean of the patch tokens share one projector and are also matched with each other.
  AdamW, learning rate {lr}, cosine decay.
- **How long**: {step:,} of {steps:,} steps of {batch} images (two views each), {minutes:.0f} minutes on {hardware}.
- **Seed**: {seed}. **Date**: {today}. **Command**: `python scripts/pretrain_tiny.py{command}`

## How well it tells kinds apart that it never saw
Leave-one-out nearest neighbours (cosine) on {held_out:,} creatures of {held_out_kinds} kinds of the
`evaluated` pool, data seed {held_out_seed} (the demo has another seed); chance is {chance:.0f} %.
These figures watched the training and chose nothing.

| feature | 1-NN % | 5-NN % |
|---|---|---|
{figures}
"""


def write_card(training: Training, held_out: creatures.Creatures, rows: dict[str, Figures]) -> None:
    """tiny.md: how the weights came about."""
    chosen = settings(training.arguments)
    changed = [f" --{name.replace('_', '-')} {chosen[name]}" for name in chosen if chosen[name] != DEFAULTS[name]]
    text = CARD.format(
        **chosen,
        parameters=sum(p.numel() for p in training.model.parameters()),
        mean=MEAN,
        std=STD,
        images=len(training.images),
        step=training.step,
        minutes=training.seconds / 60,
        hardware=f"{torch.get_num_threads()} {platform.machine()} CPU cores",
        today=date.today().isoformat(),
        command=" --cache CACHE" + "".join(changed),
        held_out=len(held_out.images),
        held_out_kinds=len(held_out.kinds),
        held_out_seed=HELD_OUT_SEED,
        chance=100 / len(held_out.kinds),
        figures="\n".join(f"| {name} | {row.one_nn:.1f} | {row.five_nn:.1f} |" for name, row in rows.items()),
    )
    files.write_whole(training.arguments.out / "tiny.md", text)


DEFAULTS: dict[str, int | float] = {
    "seed": 7, "kinds": 400, "per_kind": 50, "batch": 256, "steps": 1300, "asleep": 800, "lr": 2e-3, "temperature": 0.2,
}  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--cache", type=Path, required=True, help="folder for drawn images and checkpoint")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder for tiny.safetensors and tiny.md")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints and figures")
    described = {
        "seed": "of the drawing and the training",
        "kinds": "number of kinds to pretrain on",
        "per_kind": "images of each kind",
        "batch": "images a step",
        "steps": "training steps in all",
        "asleep": "steps before the transformer's blocks wake up",
        "lr": "peak learning rate",
        "temperature": "of InfoNCE",
    }
    for name, text in described.items():
        default = DEFAULTS[name]
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(default), default=default, help=f"{text} (default {default})")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    files.make_folder(arguments.out)
    cache = files.make_folder(arguments.cache)
    images = np.array(pretraining_images(cache, arguments.kinds, arguments.per_kind, arguments.seed))
    held_out = creatures.make(20, 40, HELD_OUT_SEED)
    training = Training(images, arguments)
    untrained = {f"{name}, untrained": row for name, row in measure(training.model, held_out).items()}
    untrained["raw pixels"] = pixels_knn(held_out)
    training.resume(cache / "checkpoint.pt")
    with progress_bar("pretraining", arguments.steps, done=training.step) as bar:
        while training.step < arguments.steps:
            training.advance()
            bar.advance(f"loss {training.loss:.3f}")
            if training.step % arguments.every == 0 or training.step == arguments.steps:
                training.save(cache / "checkpoint.pt")
                figures = measure(training.model, held_out)
                write_weights(training, arguments.out)
                write_card(training, held_out, figures | untrained)
                shown = ", ".join(f"{name} {row.one_nn:.1f}/{row.five_nn:.1f}" for name, row in figures.items())
                console.print(
                    f"step {training.step}/{arguments.steps} loss {training.loss:.3f} 1-NN/5-NN: {shown}; "
                    f"{training.seconds / 60:.1f} min so far"
                )


if __name__ == "__main__":
    main()
