"""Tunings of a backbone: LoRA re-derived, pixel prompts in a network, what can be cached, which backbones they fit."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from newkinds.data import load_table
from newkinds.data.batch import CachedTokens, Pixels
from newkinds.data.table import readable
from newkinds.data.views import Preprocessing
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tunings import TUNINGS
from newkinds.errors import NewkindsError
from newkinds.runs.config import resolve
from newkinds.training.cache import cached_tokens

SMALL = {"img_size": 28, "patch_size": 14, "embed_dim": 48, "depth": 4, "num_heads": 4, "num_classes": 0}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "registers": {"reg_tokens": 4, "no_embed_class": True},
    "no bias": {"qkv_bias": False},
    "mean pooling": {"global_pool": "avg", "class_token": False},
}


def small_vit(tuning: str, kind: str = "plain", train_blocks: int = 0, **settings: Any) -> Backbone:
    torch.manual_seed(0)
    network = timm.models.VisionTransformer(**SMALL, **KINDS[kind])  # type: ignore[arg-type]
    for parameter in network.parameters():  # biases and norms start at 0 and 1, where mistakes would not show
        nn.init.normal_(parameter, std=0.3)
    backbone = Backbone(network, Preprocessing(28), train_blocks, "small ViT")
    backbone.tuning = TUNINGS[tuning](backbone.anatomy, **settings)
    return backbone.double()


def images() -> Tensor:
    return torch.randn(3, 3, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def moved(backbone: Backbone) -> Backbone:
    """What trains in the tuning as it may be after some steps."""
    for parameter in backbone.tuning.parameters():
        nn.init.normal_(parameter, std=0.2)
    return backbone


def plain(backbone: Backbone) -> Backbone:
    """The same network without the tuning."""
    return Backbone(deepcopy(backbone.network), backbone.preprocessing, backbone.train_blocks)


# --- LoRA ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patches", [True, False])
@pytest.mark.parametrize("kind", list(KINDS))
def test_lora_adds_a_product_of_low_rank_to_the_maps_of_the_last_blocks(kind: str, patches: bool) -> None:
    backbone = moved(small_vit("lora", kind, train_blocks=1, rank=2, scale=0.5, blocks=3))
    changed = plain(backbone)
    up, down = backbone.tuning.get_parameter("up"), backbone.tuning.get_parameter("down")
    assert (up.shape, down.shape) == ((3, 144, 2), (3, 2, 48))
    with torch.no_grad():
        for number in range(3):
            weight = changed.network.blocks[number + 1].attn.qkv.weight
            for row in range(144):
                for r in range(2):
                    weight[row] += 0.5 * up[number, row, r] * down[number, r]
    found, expected = backbone(images(), patches), changed(images(), patches)
    torch.testing.assert_close(found.cls, expected.cls)
    torch.testing.assert_close(found.patches, expected.patches)
    assert not torch.allclose(found.cls, plain(backbone)(images(), patches).cls)


def test_what_lora_learns_is_the_gradient_of_the_map() -> None:
    backbone = moved(small_vit("lora", rank=3, scale=0.5, blocks=1))
    up, down = backbone.tuning.get_parameter("up"), backbone.tuning.get_parameter("down")
    backbone(images()).cls.sin().sum().backward()
    whole = plain(backbone)
    weight = whole.network.blocks[3].attn.qkv.weight
    with torch.no_grad():
        weight += 0.5 * up[0] @ down[0]
    weight.requires_grad_()
    whole(images()).cls.sin().sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(up.grad, 0.5 * (weight.grad @ down[0].T)[None])
    torch.testing.assert_close(down.grad, 0.5 * (up[0].T @ weight.grad)[None])
    assert all(parameter.grad is None for parameter in backbone.network.parameters())


@pytest.mark.parametrize("tuning", ["lora", "pixels"])
def test_at_the_start_the_network_is_as_without_a_tuning(tuning: str) -> None:
    backbone = small_vit(tuning)
    assert any(True for _ in backbone.tuning.parameters())
    found, expected = backbone(images()), plain(backbone)(images())
    torch.testing.assert_close(found.cls, expected.cls)
    torch.testing.assert_close(found.patches, expected.patches)


@pytest.mark.parametrize("patches", [True, False])
@pytest.mark.parametrize(("train_blocks", "blocks", "frozen"), [(0, 1, 3), (0, 3, 1), (2, 1, 2), (1, 9, 0)])
def test_what_comes_before_lora_can_be_kept(train_blocks: int, blocks: int, frozen: int, patches: bool) -> None:
    backbone = moved(small_vit("lora", train_blocks=train_blocks, blocks=blocks))
    assert backbone.frozen_blocks == frozen
    assert backbone.has_frozen_part() == (blocks < 4)
    kept = backbone.frozen_part(images(), patches)
    assert kept.shape == (3, *backbone.sequence_shape(patches))
    assert not kept.requires_grad
    whole, apart = backbone(images(), patches), backbone.trained_part(kept, patches)
    torch.testing.assert_close(apart.cls, whole.cls)
    torch.testing.assert_close(apart.patches, whole.patches)
    encoder = Encoder(backbone.float(), ORGANIZERS["none"](48))
    torch.testing.assert_close(encoder(CachedTokens(kept)).feature, encoder(images().float()).feature)


# --- pixels in a network ---------------------------------------------------------------------------------------


def test_every_image_has_the_prompts_also_when_nothing_trains() -> None:
    backbone = moved(small_vit("pixels", frame=60))
    prompt = getattr(backbone.tuning, "prompt")()  # noqa: B009  (a tuning need not have one)
    found = backbone.eval()(images())
    torch.testing.assert_close(found.cls, plain(backbone)(images() + prompt).cls)
    assert not torch.allclose(found.cls, plain(backbone)(images()).cls)


def test_prompts_are_added_after_images_are_normalised() -> None:
    encoder = Encoder(moved(build_backbone("tiny", tuning={"name": "pixels"})), ORGANIZERS["none"](96))
    pixels = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8)
    normalised = encoder.backbone.preprocessing.normalise(pixels)
    torch.testing.assert_close(encoder(Pixels(pixels)).feature, encoder(normalised).feature)


@pytest.mark.parametrize(
    ("size", "given", "width"), [(224, 30, 30), (64, 30, 9), (112, 30, 15), (14, 1, 1), (14, 200, 7)]
)
def test_a_frame_is_as_wide_as_the_image_is_large(size: int, given: int, width: int) -> None:
    """At least one pixel, and at most the whole image."""
    vit = timm.models.VisionTransformer(**{**SMALL, "img_size": size})  # type: ignore[arg-type]
    backbone = Backbone(vit, Preprocessing(size))
    border = TUNINGS["pixels"](backbone.anatomy, where="frame", frame=given).get_buffer("border")
    assert border.sum() == size**2 - max(size - 2 * width, 0) ** 2


# --- caches, backbones, settings -------------------------------------------------------------------------------


def test_a_cache_is_refused_with_the_reason_if_nothing_stays_the_same() -> None:
    table = readable(load_table({"name": "creatures", "categories": 4, "per_category": 4}), contents=True)
    for tuning in ({"name": "pixels"}, {"name": "lora", "blocks": 4}):
        backbone = build_backbone("tiny", tuning=tuning)
        assert not backbone.has_frozen_part()
        with pytest.raises(NewkindsError, match=r"changes the image or the first block, so nothing .* leave out"):
            cached_tokens(backbone, table, 2)


@pytest.mark.parametrize("tuning", ["lora", "pixels"])
def test_a_cnn_is_told_what_fits_it(tuning: str) -> None:
    sentence = {
        "lora": r"'lora' works inside the blocks of a plain ViT, which the backbone test_resnet is not: choose a ViT",
        "pixels": r"test_resnet does not cut images into patches.*choose a ViT, or --set tuning\.where=frame",
    }
    with pytest.raises(NewkindsError, match=sentence[tuning]):
        build_backbone("test_resnet", tuning={"name": tuning}, load_weights=False)


def test_a_cnn_can_have_a_frame() -> None:
    cnn = build_backbone("test_resnet", image_size=64, tuning={"name": "pixels", "where": "frame"}, load_weights=False)
    tokens = moved(cnn)(torch.randn(2, 3, 64, 64))
    tokens.cls.sum().backward()
    gradient = cnn.tuning.get_parameter("frame").grad
    assert gradient is not None
    assert gradient.any()
    assert not gradient[:, 9:-9, 9:-9].any()


@pytest.mark.parametrize(
    ("name", "setting", "value"), [("lora", "rank", 0), ("pixels", "ring", 0), ("pixels", "where", "everywhere")]
)
def test_settings_without_a_meaning_are_refused(name: str, setting: str, value: object) -> None:
    with pytest.raises(NewkindsError, match=rf"tuning\.{setting}"):
        resolve({"data": {"name": "creatures"}, "tuning": {"name": name, setting: value}})


def test_nothing_is_tuned_if_nothing_trains() -> None:
    config = resolve({"data": {"name": "creatures"}, "tuning": {"name": "lora"}, "train": {"epochs": 0}})
    assert config.tuning == {"name": "blocks"}
