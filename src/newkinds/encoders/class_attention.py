"""What the class token of a vision transformer looks at."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from ..errors import NewkindsError
from .backbone import Backbone


@contextmanager
def class_attention(backbone: Backbone) -> Iterator[list[Tensor]]:
    """While it is open, each pass through the backbone adds the class token's attention in the last block to a list:
    (B, H, N) over the patches. A row sums to less than 1, because class and register tokens are looked at, too.

    timm computes attention in one fused step, without the weights, unless it is told not to: the last block is told so
    for the time being.

    >>> with class_attention(encoder.backbone) as seen:
    ...     encoder(images)
    >>> seen[0].mean(dim=1)                       # (B, N): the mean of all heads
    """
    attention, prefix = _last_attention(backbone), backbone.network.num_prefix_tokens + backbone.tuning.extra
    weights: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        weights.append(inputs[0][:, :, 0, prefix:].detach())  # of (B, H, T, T)

    fused = attention.fused_attn
    with ExitStack() as stack:
        stack.callback(setattr, attention, "fused_attn", fused)
        stack.callback(attention.attn_drop.register_forward_pre_hook(keep).remove)
        attention.fused_attn = False
        yield weights


def _last_attention(backbone: Backbone) -> Any:
    """The attention of the last block, which passes its weights through a dropout layer."""
    name = backbone.name
    if not backbone.has_class_token:
        raise NewkindsError(f"the backbone {name} has no class token, so there is no class-token attention to show.")
    blocks = getattr(backbone.network, "blocks", None)
    attention = getattr(blocks[-1], "attn", None) if blocks else None
    if not (hasattr(attention, "fused_attn") and isinstance(getattr(attention, "attn_drop", None), nn.Module)):
        raise NewkindsError(
            f"the attention of the backbone {name} cannot be read: its blocks are not timm's usual ones."
        )
    return attention
