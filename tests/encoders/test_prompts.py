"""Deep prompts against the numbers of a published implementation (float64), and what other parts see of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor, nn

from newkinds.data.batch import CachedTokens
from newkinds.data.views import Preprocessing
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.class_attention import class_attention
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tunings import TUNINGS, Anatomy
from newkinds.encoders.weights import resize_position_embedding
from newkinds.errors import NewkindsError

NUMBERS = Path(__file__).parents[1] / "numbers" / "promptcal.npz"
TIGHT = {"rtol": 0.0, "atol": 1e-9}
PUBLISHED = {"patch_size": 8, "embed_dim": 12, "depth": 3, "num_heads": 2, "mlp_ratio": 2}
SMALL = {"img_size": 28, "patch_size": 14, "embed_dim": 48, "depth": 3, "num_heads": 4}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "registers": {"reg_tokens": 4, "no_embed_class": True},
    "mean pooling": {"global_pool": "avg", "class_token": False},
}


def prompted(network: Any, size: int, train_blocks: int = 1, **settings: Any) -> Backbone:
    backbone = Backbone(network, Preprocessing(size), train_blocks, "small ViT")
    backbone.tuning = TUNINGS["prompts"](backbone.anatomy, **settings)
    return backbone.double()


def small(kind: str = "plain", train_blocks: int = 1, **settings: Any) -> Backbone:
    torch.manual_seed(0)
    network = timm.models.VisionTransformer(**SMALL, num_classes=0, **KINDS[kind])  # type: ignore[arg-type]
    for parameter in network.parameters():  # biases and norms start at 0 and 1, where mistakes would not show
        nn.init.normal_(parameter, std=0.3)
    return prompted(network, 28, train_blocks, **settings)


def images() -> Tensor:
    return torch.randn(3, 3, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def plain_loop(backbone: Backbone, pixels: Tensor) -> Tensor:
    """Class and register tokens, prompts, patches (B, T, D) after the last block and norm, block by block."""
    network, tuning = backbone.network, backbone.tuning
    sequence = network._pos_embed(network.patch_embed(pixels))
    split = network.num_prefix_tokens
    front, patches = sequence[:, :split], sequence[:, split:]
    count = 0
    for number, block in enumerate(network.blocks):
        tokens = [front, patches]
        if number >= tuning.first:
            values = tuning.values[number - tuning.first]
            count = len(values)
            tokens = [front, values.repeat(len(pixels), 1, 1), patches]
        sequence = block(torch.cat(tokens, dim=1))
        front, patches = sequence[:, :split], sequence[:, split + count :]
    return network.fc_norm(network.norm(sequence))


# --- published numbers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published() -> dict[str, Tensor]:
    with np.load(NUMBERS) as stored:
        return {name.split("/")[1]: torch.from_numpy(stored[name]) for name in stored.files if "vpt/" in name}


def as_published(arrays: dict[str, Tensor], size: int) -> Backbone:
    norm = partial(nn.LayerNorm, eps=1e-6)
    network = timm.models.VisionTransformer(img_size=size, num_classes=0, norm_layer=norm, **PUBLISHED)  # type: ignore[arg-type]
    backbone = prompted(network, size, count=4)
    state = {name.removeprefix("param."): value for name, value in arrays.items() if name.startswith("param.")}
    backbone.tuning.load_state_dict({"values": state.pop("prompt_tokens")})
    positions = state["pos_embed"]  # of class token, prompts (zero) and patches
    assert not positions[:, 1:5].any()
    positions = torch.cat([positions[:, :1], positions[:, 5:]], dim=1)
    network.load_state_dict({**state, "pos_embed": resize_position_embedding(positions, size // 8)})
    return backbone


@pytest.mark.parametrize(("size", "pixels", "tokens"), [(16, "x", "tokens"), (24, "x24", "tokens24")])
def test_tokens_are_the_published_ones(published: dict[str, Tensor], size: int, pixels: str, tokens: str) -> None:
    backbone = as_published(published, size)
    found = backbone(published[pixels])
    assert found.prompts is not None
    expected = published[tokens]  # class token, prompts, patches
    torch.testing.assert_close(torch.cat([found.cls[:, None], found.prompts, found.patches], dim=1), expected, **TIGHT)
    torch.testing.assert_close(backbone(published[pixels], patches=False).cls, expected[:, 0], **TIGHT)


def test_what_enters_and_what_methods_read_are_the_published_ones(published: dict[str, Tensor]) -> None:
    backbone = as_published(published, 16)
    entering = backbone.tuning.enter(0, backbone._first_tokens(published["x"]))
    torch.testing.assert_close(entering, published["prepared"], **TIGHT)
    prompts = Encoder(backbone, ORGANIZERS["none"](12))(published["x"], prompts=True).prompts
    assert prompts is not None
    torch.testing.assert_close(prompts[:, :2].mean(dim=1), published["aux2"], **TIGHT)


# --- block by block ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [None, 1, 2, 99])
@pytest.mark.parametrize("kind", list(KINDS))
def test_tokens_keep_their_order(kind: str, blocks: int | None) -> None:
    """Class token, registers, prompts, patches; also in networks whose final norm comes after pooling."""
    backbone = small(kind, blocks=blocks)
    sequence, split = plain_loop(backbone, images()), backbone.network.num_prefix_tokens
    found = backbone(images())
    assert found.prompts is not None
    torch.testing.assert_close(found.prompts, sequence[:, split : split + 5])
    torch.testing.assert_close(found.patches, sequence[:, split + 5 :])
    assert found.patches.shape[1] == 4
    if backbone.has_class_token:
        torch.testing.assert_close(found.cls, sequence[:, 0])
        torch.testing.assert_close(backbone(images(), patches=False).cls, sequence[:, 0])
    assert torch.autograd.grad(found.cls.sum(), backbone.tuning.values)[0].any(dim=2).all()  # all of them help


@pytest.mark.parametrize("train_blocks", [0, 1, 3])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("kind", list(KINDS))
def test_prompts_in_the_last_blocks_leave_a_part_to_cache(kind: str, blocks: int, train_blocks: int) -> None:
    backbone = small(kind, train_blocks, blocks=blocks)
    assert not backbone.is_fixed
    assert backbone.has_frozen_part(patches=False)
    assert backbone.changing_blocks == max(blocks, train_blocks)
    kept = backbone.frozen_part(images())
    assert kept.shape == (3, *backbone.sequence_shape())
    assert not kept.requires_grad
    whole = backbone(images())
    torch.testing.assert_close(backbone.trained_part(kept).prompts, whole.prompts)
    torch.testing.assert_close(backbone.trained_part(kept).patches, whole.patches)
    torch.testing.assert_close(backbone.trained_part(kept, patches=False).cls, whole.cls)
    cached = Encoder(backbone.float(), ORGANIZERS["none"](48))(CachedTokens(kept.float()), prompts=True)
    torch.testing.assert_close(cached.prompts, whole.prompts, atol=1e-4, rtol=1e-4, check_dtype=False)
    torch.testing.assert_close(cached.feature, whole.cls, atol=1e-4, rtol=1e-4, check_dtype=False)


def test_prompts_in_every_block_leave_nothing_to_cache() -> None:
    backbone = small()
    assert not backbone.has_frozen_part()
    assert "changes the image or the first block" in backbone.why_not_cached


@pytest.mark.parametrize("kind", ["plain", "registers"])
def test_class_attention_is_that_of_patches_alone(kind: str) -> None:
    backbone = small(kind, count=3)
    entering: list[Tensor] = []
    block, skipped = backbone.network.blocks[-1], backbone.network.num_prefix_tokens + 3
    hook = block.register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0]))
    with torch.no_grad(), class_attention(backbone) as seen:
        backbone(images())
    hook.remove()
    q, k, _ = block.attn.qkv(block.norm1(entering[0])).unflatten(2, (3, 4, 12)).permute(2, 0, 3, 1, 4)  # (B, H, T, d)
    weights = (q[:, :, :1] @ k.transpose(2, 3) / 12**0.5).softmax(dim=3)[:, :, 0]  # (B, H, T)
    assert seen[0].shape == (3, 4, 4)
    torch.testing.assert_close(seen[0], weights[:, :, skipped:])


def test_a_cnn_has_no_place_for_prompts() -> None:
    with pytest.raises(NewkindsError, match=r"'prompts' works inside the blocks of a plain ViT, which .*resnet10t is"):
        build_backbone("resnet10t", tuning={"name": "prompts"}, load_weights=False)


def test_prompts_start_small() -> None:
    torch.manual_seed(0)
    values = TUNINGS["prompts"](Anatomy("ViT-B", 768, 224, 12, 1, 16)).values.detach()
    assert values.shape == (12, 5, 768)
    assert abs(values.mean()) < 2e-4
    assert values.std().item() == pytest.approx(0.02, rel=0.02)
    assert (values.abs() > 0.04).float().mean().item() == pytest.approx(0.0455, abs=0.004)  # normal, not uniform
