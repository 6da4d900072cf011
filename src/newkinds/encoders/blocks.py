"""Transformer blocks that compute no more than is read: the same results as timm's, by other brackets."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call


def first_token(block: Any, tokens: Tensor) -> Tensor:
    """A block's output for its first token alone: (B, T, D) → (B, 1, D), the same as `block(tokens)[:, :1]`.

    One query per head needs neither keys nor values: q (x W_k)ᵀ is (q W_kᵀ) xᵀ, and a (x W_v) is (a x) W_v.
    """
    if not _is_plain_block(block):
        return block(tokens)[:, :1]
    attention = block.attn
    heads = attention.num_heads
    x = block.norm1(tokens)  # (B, T, D)
    w_q, w_k, w_v = attention.qkv.weight.unflatten(0, (3, heads, -1))  # (H, d, D) each
    query = torch.einsum("bd,hed->bhe", x[:, 0], w_q)  # (B, H, d)
    bias_v: Tensor | float = 0.0
    if attention.qkv.bias is not None:
        # a key's bias adds the same to all scores of a query, so the softmax does not see it
        bias_q, _, bias_v = attention.qkv.bias.unflatten(0, (3, heads, -1))  # (H, d) each
        query = query + bias_q
    probes = torch.einsum("bhe,hed->bhd", query * attention.scale, w_k)  # (B, H, D)
    weights = (probes @ x.transpose(1, 2)).softmax(dim=2)  # (B, H, T)
    message = torch.einsum("bhd,hed->bhe", weights @ x, w_v) + bias_v  # (B, H, d)
    answer = attention.proj(attention.norm(message.flatten(1)))  # (B, D)
    token = tokens[:, 0] + block.ls1(answer)
    return (token + block.ls2(block.mlp(block.norm2(token))))[:, None]


def all_tokens(block: Any, tokens: Tensor) -> Tensor:
    """A block's output, the same as `block(tokens)`: (B, T, D).

    If the block is trained but what enters it is not, the scale g and shift s of the first norm are folded into the map
    after it, (x̂ g + s) W = x̂ (g W) + s W: they learn the same without the gradient of the product with W_qkv.
    """
    if tokens.requires_grad or not torch.is_grad_enabled() or not _folds(block):
        return block(tokens)
    norm, qkv = block.norm1, block.attn.qkv
    x = F.layer_norm(tokens, norm.normalized_shape, eps=norm.eps)  # (B, T, D), wants no gradient
    folded = {"qkv.weight": qkv.weight * norm.weight, "qkv.bias": qkv.bias + qkv.weight @ norm.bias}
    tokens = tokens + block.ls1(functional_call(block.attn, folded, (x,)))
    return tokens + block.ls2(block.mlp(block.norm2(tokens)))


def _is_plain_block(block: Any) -> bool:
    """timm's usual block of plain layers: anything else, such as an adapter around a linear map, must be called."""
    from timm.layers import LayerNorm, Mlp  # slow to import; whoever has a block has it already
    from timm.models.vision_transformer import Attention, Block

    if type(block) is not Block or type(block.attn) is not Attention or type(block.mlp) is not Mlp:
        return False
    attention = block.attn
    asked_as_they_are = isinstance(attention.q_norm, nn.Identity) and isinstance(attention.k_norm, nn.Identity)
    if not asked_as_they_are or getattr(attention, "gate", None) is not None or not hasattr(attention, "norm"):
        return False
    plain_norms = (nn.LayerNorm, LayerNorm)  # the same arithmetic
    maps, norms = (attention.qkv, attention.proj, block.mlp.fc1, block.mlp.fc2), (block.norm1, block.norm2)
    if any(type(layer) is not nn.Linear for layer in maps) or any(type(layer) not in plain_norms for layer in norms):
        return False
    return not any(_is_watched(layer) for layer in block.modules())


def _is_watched(layer: nn.Module) -> bool:
    """Whether somebody waits for this layer to be called, or has given it another function."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)


def _folds(block: Any) -> bool:
    """Whether the first norm is trained, and the map after it has a place for its scale and shift."""
    if not _is_plain_block(block) or block.attn.qkv.bias is None:
        return False
    affine = (block.norm1.weight, block.norm1.bias)
    return all(parameter is not None and parameter.requires_grad for parameter in affine)
