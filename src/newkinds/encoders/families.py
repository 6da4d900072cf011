"""What suits a backbone, by the family it is of: a small table, each line with the measurement behind it."""

import re
from typing import Any, NamedTuple


class Family(NamedTuple):
    """Backbones that were pretrained in the same way, and the settings that suit them."""

    name: str
    pattern: str  # of timm's names
    train: dict[str, Any]  # defaults of the settings section `train`
    cpf: dict[str, Any]  # defaults of the section `organizer`, if that is CPF
    evidence: str  # what was measured, where; or that nothing was


FAMILIES = (
    Family("not chosen yet", r"auto$", {}, {}, "the backbone will be chosen, and with it its family"),
    Family("tiny", r"tiny$", {}, {}, "creatures: all figures of `newkinds demo` (RESULTS.md)"),
    Family(
        "DINOv2",
        r".*dinov2",
        {"backbone_lr_ratio": 0.01},
        {"readout": "gated"},
        "24 kinds of pets, last block trained: 86.9 All at a ratio of 0.01, 73.1 at 1, 81.0 for k-means without "
        "training; the same order on 50 kinds of birds (RESULTS.md, Real images: DINOv2), where gated is the best of "
        "CPF's three read-outs on new kinds",
    ),
    Family(
        "DINOv3",
        r".*dinov3",
        {"backbone_lr_ratio": 0.01},
        {"readout": "gated"},
        "not measured: as DINOv2, which was trained in the same way",
    ),
    Family("DINO", r".*\.dino$", {}, {}, "not measured here: the rate of the published GCD results, one for all parts"),
    Family("CLIP", r".*clip", {"backbone_lr_ratio": 0.01}, {}, "not measured: the careful rate of DINOv2"),
    Family("CNN", r"(conv|res|efficient|reg|mobile)net", {"backbone_lr_ratio": 0.01}, {}, "not measured: as CLIP"),
    Family("supervised", r"", {"backbone_lr_ratio": 0.01}, {}, "not measured: as CLIP"),
)


def family_of(backbone: str) -> Family:
    """The family of a backbone by its name in timm.

    >>> family_of("vit_small_patch14_dinov2").train
    {'backbone_lr_ratio': 0.01}
    """
    return next(family for family in FAMILIES if re.match(family.pattern, backbone))
