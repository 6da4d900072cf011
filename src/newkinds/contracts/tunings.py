"""What every tuning promises, inside the bundled backbone."""

import torch
from torch import Tensor, nn

from ..encoders.backbone import Backbone
from ..encoders.backbones import build_backbone
from ..encoders.tokens import Tokens
from .base import AskedPart, NotAsked, contract, require

BATCH = 4


def build(part: AskedPart, seed: int = 0) -> Backbone:
    """The bundled backbone, no block of which trains, with the tuning."""
    torch.manual_seed(seed)
    return build_backbone("tiny", train_blocks=0, tuning={"name": part.name, **part.settings}).eval()


def images_for(backbone: Backbone) -> Tensor:
    size = backbone.preprocessing.size
    return torch.rand(BATCH, 3, size, size, generator=torch.Generator().manual_seed(0))


def move(backbone: Backbone) -> Backbone:
    """What trains in the tuning as it may be after some steps."""
    torch.manual_seed(1)
    for parameter in backbone.tuning.parameters():
        nn.init.normal_(parameter, std=0.1)
    return backbone


def alike(one: Tokens, other: Tokens) -> bool:
    return torch.allclose(one.cls, other.cls, atol=1e-4) and torch.allclose(one.patches, other.patches, atol=1e-4)


@contract("tuning", keeper="enter")
def tokens_keep_their_shapes(part: AskedPart) -> None:
    """Class tokens and patches are finite and have the shapes that they have without it."""
    backbone, plain = move(build(part)), build_backbone("tiny", train_blocks=0).eval()
    tokens, expected = backbone(images_for(backbone)), plain(images_for(backbone))
    require(tokens.cls.shape == expected.cls.shape, f"class tokens are of shape {tuple(tokens.cls.shape)}.")
    require(tokens.patches.shape == expected.patches.shape, f"patches are of shape {tuple(tokens.patches.shape)}.")
    require(bool(tokens.cls.isfinite().all() and tokens.patches.isfinite().all()), "tokens are not finite.")


@contract("tuning", keeper="enter")
def gradients_reach_the_tuning_alone(part: AskedPart) -> None:
    """Gradients reach every parameter of it, and none of the frozen backbone."""
    backbone = move(build(part))
    if not list(backbone.tuning.parameters()):
        raise NotAsked("it has no parameters")
    tokens = backbone(images_for(backbone))
    (tokens.cls.sin().sum() + tokens.patches.sin().sum()).backward()
    missed = [name for name, p in backbone.tuning.named_parameters() if p.grad is None or not p.grad.any()]
    require(not missed, f"no gradient reaches {', '.join(missed[:3])}.")
    others = [name for name, p in backbone.network.named_parameters() if p.grad is not None and p.grad.any()]
    require(not others, f"the backbone is frozen, but a gradient reaches {', '.join(others[:3])}.")


@contract("tuning")
def what_comes_before_it_can_be_cached(part: AskedPart) -> None:
    """What comes before the block `first` does not depend on it, and so can be cached."""
    backbone = build(part)
    if not backbone.has_frozen_part():
        raise NotAsked("nothing comes before it")
    images = images_for(backbone)
    kept = backbone.frozen_part(images)
    move(backbone)
    same = torch.equal(kept, backbone.frozen_part(images))
    require(same, f"what is cached changes when it trains: `first` is {backbone.tuning.first}, lower it.")
    same = alike(backbone.trained_part(kept), backbone(images))
    require(same, f"from the cache the tokens are others than without: `first` is {backbone.tuning.first}, lower it.")


@contract("tuning")
def starts_as_the_backbone(part: AskedPart) -> str | None:
    """At the start the backbone is as without it."""
    backbone, plain = build(part), build_backbone("tiny", train_blocks=0).eval()
    images = images_for(backbone)
    near = torch.cosine_similarity(backbone(images).cls, plain(images).cls, dim=1).mean().item()
    return None if near > 0.999 else f"the cosine of class tokens with and without it is {near:.3f}"
