"""The class token's attention: what timm's own unfused computation gives, and nothing else changes."""

import pytest
import torch

from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.class_attention import class_attention
from newkinds.errors import NewkindsError

SIZES = {"tiny": 64, "vit_small_patch14_reg4_dinov2": 56, "vit_small_patch16_dinov3": 64}  # plain, registers, rope


@pytest.mark.parametrize("name", SIZES)
def test_weights_are_given_and_results_stay(name: str) -> None:
    backbone = build_backbone(name, image_size=SIZES[name], load_weights=False)
    images = torch.randn(2, 3, SIZES[name], SIZES[name])
    attention = backbone.network.blocks[-1].attn
    with torch.inference_mode():
        before = backbone(images)
        with class_attention(backbone) as seen:
            during = backbone(images)
        after = backbone(images)
    assert len(seen) == 1
    assert seen[0].shape == (2, attention.num_heads, before.patches.shape[1])
    assert (seen[0].sum(dim=2) < 1).all()  # the rest is on class and register tokens
    torch.testing.assert_close(during.patches, before.patches, atol=1e-4, rtol=1e-4)
    assert torch.equal(after.patches, before.patches)
    assert attention.fused_attn
    assert not attention.attn_drop._forward_pre_hooks


def test_attention_of_a_plain_block_is_rederived() -> None:
    backbone = build_backbone("tiny")
    block, tokens = backbone.network.blocks[-1], []
    images = torch.randn(2, 3, 64, 64)
    hook = block.register_forward_pre_hook(lambda _, inputs: tokens.append(inputs[0]))
    with torch.no_grad(), class_attention(backbone) as seen:
        backbone(images)
    hook.remove()
    heads = block.attn.num_heads
    qkv = block.attn.qkv(block.norm1(tokens[0])).detach()  # (B, T, 3·D)
    for image in range(2):
        for head in range(heads):
            width = qkv.shape[2] // 3 // heads
            q = qkv[image, 0, head * width : (head + 1) * width]
            keys = qkv[image, :, 96 + head * width : 96 + (head + 1) * width]
            scores = torch.stack([q @ key / width**0.5 for key in keys])
            naive = scores.exp() / scores.exp().sum()
            torch.testing.assert_close(seen[0][image, head], naive[1:], atol=1e-5, rtol=1e-4)


def test_an_error_inside_leaves_the_network_as_it_was() -> None:
    backbone = build_backbone("tiny", load_weights=False)
    attention = backbone.network.blocks[-1].attn
    with pytest.raises(RuntimeError), class_attention(backbone):
        backbone(torch.randn(2, 3, 5, 5))
    assert attention.fused_attn
    assert not attention.attn_drop._forward_pre_hooks


@pytest.mark.parametrize("name", ["resnet10t", "convnext_atto", "vit_base_patch16_siglip_224"])
def test_networks_without_a_class_token_say_so(name: str) -> None:
    with torch.device("meta"):
        backbone = build_backbone(name, load_weights=False)
    with pytest.raises(NewkindsError, match=f"{name} has no class token"), class_attention(backbone):
        pass
