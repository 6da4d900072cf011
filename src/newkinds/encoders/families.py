"""What suits a backbone, by the family it is of: a small table, each line with the measurement behind it.

The family is what the weight file shows, else what the name in timm says, unless `backbone.family` names one."""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..console import warn
from ..errors import NewkindsError
from .weights import read_shapes

FamilyChoice = Literal["auto", "none", "tiny", "DINO", "DINOv2", "DINOv3", "CLIP", "CNN", "supervised"]
PUBLISHED: dict[str, Any] = {"backbone": {"family": "none", "precision": "float32"}}  # whatever the backbone


class Family(NamedTuple):
    """Backbones that were pretrained in the same way, and the settings that suit them."""

    name: str
    pattern: str  # of timm's names
    train: dict[str, Any]  # defaults of the settings section `train`
    cpf: dict[str, Any]  # defaults of the section `organizer`, if that is CPF
    evidence: str  # what was measured, where; or that nothing was


FAMILIES = (
    Family("none", r"(?!)", {}, {}, "the published settings: chosen by recipes and the tables of the paper"),
    Family("not chosen yet", r"auto$", {}, {}, "the backbone will be chosen, and with it its family"),
    Family("tiny", r"tiny$", {}, {}, "creatures: all figures of `newkinds demo` (RESULTS.md)"),
    Family(
        "DINOv2",
        r".*dinov2",
        {"backbone_lr_ratio": 0.01},
        {"readout": "gated"},
        "24 kinds of pets, last block trained: 86.9 All at a ratio of 0.01, 73.1 at 1, 81.0 for k-means without "
        "training; the same order on 50 kinds of birds (results/dinov2.md), where gated is the best of "
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


# names of the settings that some family has a default for
TRAIN_DEFAULTS = {name for family in FAMILIES for name in family.train}
CPF_DEFAULTS = {name for family in FAMILIES for name in family.cpf}


def family_of(backbone: str, weights: str | Path | None = None, choice: FamilyChoice = "auto") -> Family:
    """The family that was chosen, else that of the weight file, else of the backbone's name in timm.

    >>> family_of("vit_small_patch14_dinov2").train
    {'backbone_lr_ratio': 0.01}
    """
    by_name = next(family for family in FAMILIES if re.match(family.pattern, backbone))
    if choice != "auto":
        return _called(choice)
    if weights is None or not Path(weights).is_file() or by_name.name in ("not chosen yet", "tiny"):
        return by_name
    return _called(_family_in(backbone, by_name.name, Path(weights), Path(weights).stat().st_mtime_ns))


def family_shown(shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """The family that the tensors of a weight file show by their names and shapes; None if they show none.

    A bare ViT without a classifier shows none: DINO's published files are such, and so are other self-supervised ones.
    """
    names = "\n".join(shapes)
    if re.search(r"logit_scale|text_projection|ln_pre\.|norm_pre\.", names):
        return "CLIP"
    if "attn." not in names:  # no ViT: its architecture says what it is
        return None
    if any(re.search(r"(^|\.)(head|fc|classifier)\.weight$", name) and len(shapes[name]) == 2 for name in shapes):
        return "supervised"
    if re.search(r"relative_position|decoder", names):  # BEiT, masked autoencoders: no family of ours
        return None
    if has_layer_scale(shapes):
        return "DINOv2" if re.search(r"pos_embed$", names, re.MULTILINE) else "DINOv3"  # the latter has rotations
    if re.search(r"(^|\.)(teacher|student)\.|head\.last_layer", names, re.MULTILINE):
        return "DINO"
    return None


def has_layer_scale(names: Mapping[str, Any]) -> bool:
    """Whether a ViT scales what each block adds, as DINOv2 and DINOv3 do."""
    return any(".ls1." in name or name.endswith("gamma_1") for name in names)


@lru_cache
def _family_in(backbone: str, by_name: str, file: Path, changed: int) -> str:
    """What a weight file shows; if that is nothing, what the name says, or DINO for a bare ViT. `changed`: when."""
    try:
        shapes = read_shapes(file)
    except NewkindsError:  # said when it is loaded
        return by_name
    shown = family_shown(shapes)
    if shown is not None:
        return shown
    is_bare = any(name.endswith("attn.qkv.weight") for name in shapes) and "decoder" not in "".join(shapes)
    if not is_bare or by_name != "supervised" or "." in backbone:  # a name with a tag says which weights are meant
        return by_name
    warn(
        f"{file.name} does not show how it was pretrained: it has no classifier, so it is taken for DINO's, whose "
        "blocks train as fast as the head. If it is not, say so: --set backbone.family=supervised (or another; none: "
        "the published settings)."
    )
    return "DINO"


def _called(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)
