"""What CPF costs beside its backbone: parameters, operations, and time measured side by side in one run.

    python benchmarks/cpf_cost.py                # ViT-B/16 at 224 px, random weights: only the cost is looked at
    python benchmarks/cpf_cost.py --batch 16 --repeats 20

Times are ratios to the host alone, taken in the same round; the median of all rounds is printed.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

from newkinds.backbones import Backbone, build_backbone
from newkinds.encoder import Encoder, Tokens
from newkinds.methods import METHODS
from newkinds.methods.base import Batch, Progress
from newkinds.organizers import ORGANIZERS
from newkinds.organizers.cpf import CPF
from plain_cpf import PlainCPF

KNOWN, CATEGORIES = 100, 200  # as on CUB


def count_flops(run: Callable[[], object]) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def compare_times(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, tuple[float, float]]:
    """Median seconds of each run, and the median of its ratio to the first run of the same round."""
    names = list(runs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for run in runs.values():  # warm up: memory is allocated, kernels are chosen
        run()
    for round_ in range(repeats):
        first = round_ % len(names)  # nobody always runs first
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            runs[name]()
            seconds[name].append(time.perf_counter() - start)
    host = seconds[names[0]]
    return {name: (median(s), median(a / b for a, b in zip(s, host, strict=True))) for name, s in seconds.items()}


def inference(encode: Callable[[], object]) -> Callable[[], object]:
    return torch.inference_mode()(encode)


def training_step(encoder: Encoder, batch: Batch) -> Callable[[], object]:
    simgcd = METHODS["simgcd"]
    method = simgcd(simgcd.Config(), encoder.dim, KNOWN, CATEGORIES)
    trainable = [p for p in [*encoder.parameters(), *method.parameters()] if p.requires_grad]
    # All runs share the backbone and stay comparable: a step of length 0 costs what any step does.
    optimizer = torch.optim.SGD(trainable, lr=0.0, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        method.loss(batch, encoder(batch.views).feature, Progress(epoch=0, epochs=1))["loss"].backward()
        optimizer.step()

    return step


def forward_and_backward(cpf: CPF, tokens: Tokens) -> Callable[[], object]:
    """CPF's own part of a training step; tokens of a backbone that trains want their gradient too."""
    cls, patches = tokens.cls.clone().requires_grad_(), tokens.patches.clone().requires_grad_()

    leaves = [cls, patches, *cpf.parameters()]
    return lambda: torch.autograd.grad(cpf(cls, patches).sum(), leaves)


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def print_parameters(backbone: Backbone, cpf: CPF) -> None:
    base, scalars = cpf.base.numel(), 3
    rest = sum(p.numel() for p in cpf.parameters()) - base - scalars
    print(f"parameters   backbone {sum(p.numel() for p in backbone.parameters()):,}")
    print(f"             CPF {rest:,} + M·D = {base:,} + {scalars} scalars = {rest + base + scalars:,}")


def print_operations(backbone: Backbone, fast: CPF, plain: CPF) -> None:
    size = backbone.preprocessing.size
    image = torch.randn(1, 3, size, size)
    with torch.no_grad():
        tokens = backbone(image)
    host = count_flops(partial(backbone, image))
    print(f"\noperations   {'matrix products':32} MFLOP an image   share of the backbone")
    print(f"             {'backbone':32}{host / 1e6:15,.1f}")
    for name, cpf, details in (
        ("CPF, fast path, CLS* only", fast, False),
        ("CPF, fast path, with the field", fast, True),
        ("CPF, plain order", plain, False),
    ):
        flops = count_flops(partial(cpf.organize, tokens, details))
        print(f"             {name:32}{flops / 1e6:15,.1f}{flops / host:24.2%}")


def print_times(backbone: Backbone, fast: CPF, plain: CPF, count: int, repeats: int) -> None:
    """Host, host with CPF, and CPF by itself: a difference of two long times says little about a short one."""
    size = backbone.preprocessing.size
    views = torch.randn(2 * count, 3, size, size)
    labels = torch.arange(count).where(torch.arange(count) % 2 == 0, -1)  # every other image is labelled
    batch = Batch(views, labels, index=torch.arange(count))
    with torch.no_grad():
        tokens, tokens_of_views = backbone(views[:count]), backbone(views)
    encoders = {
        "host alone": Encoder(backbone, ORGANIZERS["none"](backbone.dim)),
        "host + CPF, plain order": Encoder(backbone, plain),
        "host + CPF, fast path": Encoder(backbone, fast),
    }
    alone = {"CPF by itself, plain order": plain, "CPF by itself, fast path": fast}
    measured: dict[str, dict[str, Callable[[], object]]] = {
        "forward, inference": {
            **{name: inference(partial(encoder, views[:count])) for name, encoder in encoders.items()},
            **{name: inference(partial(cpf.organize, tokens)) for name, cpf in alone.items()},
        },
        "SimGCD training step, two views, last block trained": {
            **{name: training_step(encoder, batch) for name, encoder in encoders.items()},
            **{name: forward_and_backward(cpf, tokens_of_views) for name, cpf in alone.items()},
        },
    }
    print(f"\ntime         {f'median of {repeats} rounds':32}    ms an image   against the host alone")
    for title, runs in measured.items():
        print(f"             {title}")
        for name, (seconds, ratio) in compare_times(runs, repeats).items():
            share = f"{ratio:.1%}" if name in alone else f"{ratio - 1:+.1%}"
            print(f"               {name:30}{1e3 * seconds / count:15,.1f}{share:>25}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="vit_base_patch16_224.dino", help="a timm vision transformer")
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--batch", type=int, default=4, help="images; a training step sees two views of each")
    parser.add_argument("--repeats", type=int, default=5, help="measured rounds")
    args = parser.parse_args()

    torch.manual_seed(0)
    backbone = build_backbone(args.backbone, train_blocks=1, image_size=args.size, load_weights=False)
    fast, plain = CPF(backbone.dim), PlainCPF(backbone.dim)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {processor()}, {date.today()}")
    print(f"{args.backbone} at {args.size} px, {fast.base.shape[0]} primitives, {fast.update.heads} heads\n")
    print_parameters(backbone, fast)
    print_operations(backbone, fast, plain)
    print_times(backbone, fast, plain, args.batch, args.repeats)


if __name__ == "__main__":
    main()
