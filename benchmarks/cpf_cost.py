"""What CPF costs compared with its backbone: parameters, operations, and time measured side by side in one run.

    python benchmarks/cpf_cost.py                # ViT-B/16 at 224 px, random weights: only the cost is looked at
    python benchmarks/cpf_cost.py --batch 16 --repeats 20
    python benchmarks/cpf_cost.py --others      # CPF as it is by default, and the organizers of others at its place

Times are ratios to the host alone as it is published, taken in the same round; the median of all rounds is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import repeat
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS, Organizer
from newkinds.encoders.organizers.cpf import CPF
from plain_cpf import PlainCPF
from side_by_side import AsPublished, TrainingStep, forward_and_backward, machine, ratio, simgcd_head, times_in_turns


def count_flops(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:  # it cannot follow views of parameters without gradients
        run()
    return counter.get_total_flops()


def inference(encode: Callable[[], object]) -> Callable[[], object]:
    return torch.inference_mode()(encode)


INFERENCE = "forward, inference"
FORMS: dict[str, dict[str, Any]] = {
    "CPF, parts, field trained": {"name": "cpf-parts", "train_field": True},
    "CPF, parts": {"name": "cpf-parts"},
    "CPF, gated": {"name": "cpf", "readout": "gated"},
}
OTHERS: dict[str, dict[str, Any]] = {  # in training each computes losses of its own, if it has some
    "CoGe": {"name": "coge"},
    "CoGe as released": {"name": "coge", "variant": "release"},
    "parts": {"name": "parts"},
    "slots": {"name": "slots"},
}


def built(dim: int, others: bool) -> dict[str, Organizer]:
    """What is measured beside CPF: its other forms, or the organizers of others."""
    forms = OTHERS if others else FORMS
    return {name: ORGANIZERS[form["name"]](dim, **_settings(form)) for name, form in forms.items()}


def _settings(form: dict[str, Any]) -> dict[str, Any]:
    return {setting: value for setting, value in form.items() if setting != "name"}


def print_parameters(backbone: Backbone, cpf: CPF, further: dict[str, Organizer]) -> None:
    base, scalars = cpf.base.numel(), 3
    rest = sum(p.numel() for p in cpf.parameters()) - base - scalars
    print(f"parameters   backbone {sum(p.numel() for p in backbone.parameters()):,}")
    print(f"             CPF {rest:,} + M·D = {base:,} + {scalars} scalars = {rest + base + scalars:,}")
    for name, organizer in further.items():
        parameters = list(organizer.parameters())
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        print(f"             {name}: {sum(p.numel() for p in parameters):,}, of which {trained:,} train")


def print_operations(backbone: Backbone, fast: CPF, plain: CPF, further: dict[str, Organizer]) -> None:
    size = backbone.preprocessing.size
    image = torch.randn(1, 3, size, size)
    with torch.no_grad():
        tokens = backbone(image)
    host = count_flops(partial(backbone, image))
    print(f"\noperations   {'matrix products':32} MFLOP an image   share of the backbone")
    print(f"             {'backbone':32}{host / 1e6:15,.1f}")
    measured: list[tuple[str, Organizer, bool]] = [
        ("CPF, fast path, CLS* only", fast, False),
        ("CPF, fast path, with the field", fast, True),
        ("CPF, plain order", plain, False),
        *((f"{name}, CLS* only", organizer.eval(), False) for name, organizer in further.items()),
    ]
    for name, organizer, details in measured:
        flops = count_flops(partial(organizer.organize, tokens, details))
        print(f"             {name:32}{flops / 1e6:15,.1f}{flops / host:24.2%}")


def print_times(
    backbone: Backbone, fast: CPF, plain: CPF, further: dict[str, Organizer], count: int, repeats: int
) -> None:
    """Host, host with CPF, and CPF by itself: a difference of two long times says little about a short one."""
    size = backbone.preprocessing.size
    views = torch.randn(2 * count, 3, size, size)
    labels = torch.arange(count).where(torch.arange(count) % 2 == 0, -1)  # every other image is labelled
    pixels = torch.randint(256, views.shape, dtype=torch.uint8)
    batch = Batch(Pixels(pixels), labels, index=torch.arange(count))
    with torch.no_grad():
        tokens, tokens_of_views = backbone(views[:count]), backbone(views)
    published = AsPublished.of(backbone)  # the same for all, so that the differences are CPF's
    encoders = {
        "host alone": Encoder(published, ORGANIZERS["none"](backbone.dim)),
        "host + CPF, plain order": Encoder(published, plain),
        "host + CPF, fast path": Encoder(published, fast),
        **{f"host + {name}": Encoder(published, organizer) for name, organizer in further.items()},
    }
    head = simgcd_head(backbone.dim)
    alone: dict[str, Organizer] = {"CPF by itself, plain order": plain, "CPF by itself, fast path": fast}
    alone |= {f"{name}, by itself": organizer for name, organizer in further.items()}
    measured: dict[str, dict[str, Callable[[], object]]] = {
        INFERENCE: {
            **{name: inference(partial(encoder, views[:count])) for name, encoder in encoders.items()},
            **{name: inference(partial(organizer.organize, tokens)) for name, organizer in alone.items()},
        },
        "SimGCD training step, two views, last block trained": {
            **{name: TrainingStep(encoder, head, repeat(batch)) for name, encoder in encoders.items()},
            **{name: forward_and_backward(organizer, tokens_of_views) for name, organizer in alone.items()},
        },
    }
    print(f"\ntime         {f'median of {repeats} rounds':36}    ms an image   against the host alone")
    for title, runs in measured.items():
        print(f"             {title}")
        for organizer in further.values():
            organizer.train(title != INFERENCE)
        times = times_in_turns(runs, repeats)
        for name, seconds in times.items():
            part = ratio(seconds, times["host alone"])
            share = f"{part:.1%}" if name in alone else f"{part - 1:+.1%}"
            print(f"               {name:34}{1e3 * median(seconds) / count:15,.1f}{share:>25}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="vit_base_patch16_224.dino", help="a timm vision transformer")
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--batch", type=int, default=4, help="images; a training step sees two views of each")
    parser.add_argument("--repeats", type=int, default=5, help="measured rounds")
    parser.add_argument("--others", action="store_true", help="measure organizers of others, not CPF's other forms")
    args = parser.parse_args()

    torch.manual_seed(0)
    backbone = build_backbone(args.backbone, train_blocks=1, image_size=args.size, load_weights=False)
    fast, plain = CPF(backbone.dim), PlainCPF(backbone.dim)
    print(machine())
    print(f"{args.backbone} at {args.size} px, {fast.base.shape[0]} primitives, {fast.update.heads} heads\n")
    further = built(backbone.dim, args.others)
    print_parameters(backbone, fast, further)
    print_operations(backbone, fast, plain, further)
    print_times(backbone, fast, plain, further, args.batch, args.repeats)


if __name__ == "__main__":
    main()
