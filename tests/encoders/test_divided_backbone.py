"""A backbone in two parts, frozen and trained, and a last block that computes no more than is read."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.func import functional_call

from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.blocks import all_tokens, first_token
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS

SMALL_VIT = {"img_size": 28, "patch_size": 14, "embed_dim": 48, "depth": 3, "num_heads": 4, "num_classes": 0}
KINDS = {
    "plain": {},
    "scaled as DINOv2": {"init_values": 0.5},
    "registers": {"reg_tokens": 4, "no_embed_class": True},
    "no bias": {"qkv_bias": False},
    "mean pooling": {"global_pool": "avg", "class_token": False},
    "normed queries": {"qk_norm": True},
}


def small_vit(kind: str, train_blocks: int) -> Backbone:
    torch.manual_seed(0)
    network = timm.models.VisionTransformer(**SMALL_VIT, **KINDS[kind])  # type: ignore[arg-type]
    for parameter in network.parameters():  # biases and norms start at 0 and 1, where mistakes would not show
        nn.init.normal_(parameter, std=0.3)
    return Backbone(network, build_backbone("tiny").preprocessing, train_blocks).double()


def images() -> Tensor:
    return torch.randn(3, 3, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("train_blocks", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", list(KINDS))
def test_both_parts_together_are_the_network(kind: str, train_blocks: int) -> None:
    backbone = small_vit(kind, train_blocks)
    whole = backbone._tokens_of_sequence(backbone.network.forward_features(images()))
    entering = backbone.frozen_part(images())
    assert entering.shape == (3, *backbone.sequence_shape())
    assert not entering.requires_grad
    for tokens in (backbone(images()), backbone.trained_part(entering)):
        torch.testing.assert_close(tokens.cls, whole.cls)
        torch.testing.assert_close(tokens.patches, whole.patches)
        assert tokens.grid == whole.grid == (2, 2)
    for alone in (backbone(images(), patches=False), backbone.trained_part(entering, patches=False)):
        torch.testing.assert_close(alone.cls, whole.cls)
    kept = backbone.frozen_part(images(), patches=False)
    assert kept.shape == (3, *backbone.sequence_shape(patches=False))
    assert kept.shape[1] == (1 if train_blocks == 0 else entering.shape[1])
    torch.testing.assert_close(backbone.trained_part(kept, patches=False).cls, whole.cls)


@pytest.mark.parametrize("patches", [False, True])
def test_what_a_network_that_does_not_train_gives_can_be_kept_whatever_the_network(patches: bool) -> None:
    network = timm.create_model("resnet10t", num_classes=0)
    frozen, trained = (Backbone(network, build_backbone("tiny").preprocessing, blocks) for blocks in (0, 1))
    assert frozen.has_frozen_part(patches)
    assert not trained.has_frozen_part(patches)
    pixels = torch.randn(2, 3, 64, 64)
    kept = frozen.frozen_part(pixels, patches)
    assert kept.shape == (2, *frozen.sequence_shape(patches))
    whole, again = frozen(pixels), frozen.trained_part(kept, patches)
    torch.testing.assert_close(again.cls, whole.cls)
    if patches:
        torch.testing.assert_close(again.patches, whole.patches)
        assert again.grid == whole.grid == (2, 2)


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_first_token_alone_has_the_same_value_and_gradients(kind: str) -> None:
    block = small_vit(kind, 3).network.blocks[0]
    tokens = torch.randn(2, 7, 48, dtype=torch.float64, requires_grad=True)
    parameters = dict(block.named_parameters())
    results = []
    for output in (block(tokens)[:, :1], first_token(block, tokens)):
        assert output.shape == (2, 1, 48)
        gradients = torch.autograd.grad(output.sin().sum(), [tokens, *parameters.values()])
        results.append((output, gradients))
    (expected, expected_gradients), (found, found_gradients) = results
    torch.testing.assert_close(found, expected)
    for name, there, here in zip(["tokens", *parameters], expected_gradients, found_gradients, strict=True):
        torch.testing.assert_close(here, there, msg=name)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_norm_folded_into_its_map_learns_the_same(kind: str) -> None:
    block = small_vit(kind, 3).network.blocks[0]
    tokens = torch.randn(2, 7, 48, dtype=torch.float64)
    parameters = dict(block.named_parameters())
    expected, found = block(tokens), all_tokens(block, tokens)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(y.sin().sum(), list(parameters.values())) for y in (expected, found)]
    for name, there, here in zip(parameters, *gradients, strict=True):
        torch.testing.assert_close(here, there, msg=name)


def test_no_gradient_is_made_that_only_the_first_norm_would_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what leaves the product with W_qkv, a gradient with respect to its input is the costly part."""
    block, tokens = small_vit("plain", 3).network.blocks[0], torch.randn(2, 7, 48, dtype=torch.float64)
    wanted: list[bool] = []

    def recorded(module: nn.Module, state: dict[str, Tensor], inputs: tuple[Tensor]) -> Tensor:
        wanted.append(inputs[0].requires_grad)
        return functional_call(module, state, inputs)

    monkeypatch.setattr("newkinds.encoders.blocks.functional_call", recorded)
    all_tokens(block, tokens)
    assert wanted == [False]
    assert block.norm1(tokens).requires_grad, "which is what the plain block gives its attention"


@pytest.mark.parametrize("patches", [True, False])
def test_hooks_on_a_block_are_called(patches: bool) -> None:
    backbone = small_vit("plain", 1)
    seen: list[torch.Size] = []
    backbone.network.blocks[-1].register_forward_hook(lambda _, __, output: seen.append(output.shape))
    backbone(images(), patches=patches)
    assert seen == [torch.Size((3, 5, 48))]


@pytest.mark.parametrize("name", list(ORGANIZERS))
def test_nothing_is_computed_for_patches_that_nobody_reads(name: str) -> None:
    backbone = small_vit("plain", 1)
    seen: list[int] = []
    backbone.network.norm.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    settings = {"heads": 4} if name in ("cpf", "cpf-parts") else {}
    encoder = Encoder(backbone, ORGANIZERS[name](48, **settings).double())
    feature = encoder(images()).feature
    with_details = encoder(images(), details=True)
    torch.testing.assert_close(with_details.feature, feature)
    assert with_details.tokens is not None
    assert with_details.tokens.shape == (3, 4, 48)
    assert seen == [5 if ORGANIZERS[name].reads_patches else 1, 5]


class LowRank(nn.Module):
    """An adapter around a linear map, as people put them into a backbone."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.weight, self.bias = inner.weight, inner.bias  # what a fast path would read
        self.down = nn.Linear(inner.in_features, 4, bias=False)
        self.up = nn.Linear(4, inner.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.up(self.down(x))


@pytest.mark.parametrize("patches", [True, False])
@pytest.mark.parametrize("kind", ["adapter", "hook", "other function"])
@pytest.mark.parametrize("place", ["attn.qkv", "attn.proj", "mlp.fc1", "norm1"])
def test_what_is_put_into_a_block_is_never_ignored(place: str, kind: str, patches: bool) -> None:
    backbone = small_vit("plain", 1)
    block = backbone.network.blocks[-1]
    layer, parent = block.get_submodule(place), block.get_submodule(place.rpartition(".")[0])
    if kind == "hook":
        layer.register_forward_hook(lambda _, __, output: 2 * output)
    elif kind == "other function":
        plain = layer.forward
        layer.forward = lambda x: 2 * plain(x)  # type: ignore[method-assign]
    elif isinstance(layer, nn.Linear):
        setattr(parent, place.rpartition(".")[2], LowRank(layer).double())
    else:
        setattr(parent, place, nn.Sequential(layer, nn.Linear(48, 48)).double())
    expected = backbone.network.forward_features(images())
    torch.testing.assert_close(backbone(images(), patches).cls, expected[:, 0])
