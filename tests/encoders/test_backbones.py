"""Tokens of every kind of network; only the last blocks train; names and sizes that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors import safe_open

from newkinds.data.views import Preprocessing
from newkinds.encoders import backbones
from newkinds.encoders.backbone import Backbone, blocks_of
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.known_backbones import known_backbones
from newkinds.errors import NewkindsError
from weight_files import small_vit


# ------------------------------------------------------------------------------------------------- tokens
def test_bundled_backbone() -> None:
    backbone = build_backbone("tiny")
    tokens = backbone(torch.randn(2, 3, 64, 64))
    assert backbone.dim == 96
    assert (tokens.cls.shape, tokens.patches.shape, tokens.grid) == ((2, 96), (2, 64, 96), (8, 8))
    assert tokens.cls.isfinite().all()
    assert backbone.network.pos_embed.dtype == torch.float32
    assert all(norm.eps == 1e-6 for norm in backbone.modules() if isinstance(norm, torch.nn.LayerNorm))
    with safe_open(backbones.weights_file("tiny"), "pt") as file:
        assert torch.equal(backbone.network.cls_token, file.get_tensor("cls_token").float())


def test_bundled_weights_record_their_normalisation() -> None:
    preprocessing = build_backbone("tiny", load_weights=False).preprocessing
    with safe_open(backbones.weights_file("tiny"), "pt") as file:
        recorded = file.metadata()
    assert tuple(map(float, recorded["mean"].split(","))) == preprocessing.mean
    assert tuple(map(float, recorded["std"].split(","))) == preprocessing.std


def test_bundled_backbone_at_another_size() -> None:
    backbone = build_backbone("tiny", image_size=96)
    assert backbone.preprocessing.size == 96
    assert backbone(torch.randn(1, 3, 96, 96)).grid == (12, 12)


def test_dinov3_has_five_prefix_tokens() -> None:
    backbone = build_backbone("vit_small_patch16_dinov3", image_size=48, load_weights=False)
    images = torch.randn(1, 3, 48, 48)
    tokens, sequence = backbone(images), backbone.network.forward_features(images)
    assert sequence.shape == (1, 5 + 9, 384)
    assert torch.equal(tokens.cls, sequence[:, 0])
    assert torch.equal(tokens.patches, sequence[:, 5:])
    assert tokens.grid == (3, 3)


def test_dinov2_is_used_at_224_pixels() -> None:
    backbone = build_backbone("vit_small_patch14_reg4_dinov2", load_weights=False)
    assert backbone.preprocessing == Preprocessing(
        224, crop_ratio=0.875, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    )
    assert backbone.network.patch_embed.grid_size == (16, 16)


def test_normalisation_comes_with_the_name() -> None:
    backbone = build_backbone("vit_tiny_patch16_224", image_size=32, load_weights=False)
    assert backbone.preprocessing == Preprocessing(32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@pytest.mark.parametrize("registers", [0, 4])
def test_without_class_token_the_mean_stands_in(registers: int) -> None:
    """Such networks norm after pooling, so the norm is applied to the mean and to the patches."""
    network = small_vit(class_token=False, reg_tokens=registers, global_pool="avg")
    torch.nn.init.normal_(network.fc_norm.weight)
    backbone = Backbone(network, Preprocessing(32))
    images = torch.randn(2, 3, 32, 32)
    tokens = backbone(images)
    raw = network.forward_features(images)[:, registers:]  # (2, 16, 24)
    torch.testing.assert_close(tokens.cls, network.forward_head(network.forward_features(images)))
    torch.testing.assert_close(tokens.patches, network.fc_norm(raw))
    assert tokens.patches.shape == (2, 16, 24)


@pytest.mark.parametrize(("name", "channels_last"), [("test_resnet", False), ("test_mambaout", True)])
def test_feature_maps(name: str, channels_last: bool) -> None:
    backbone = build_backbone(name, image_size=96, load_weights=False)
    images = torch.randn(2, 3, 96, 96)
    tokens, features = backbone(images), backbone.network.forward_features(images)
    rows, columns = tokens.grid
    assert tokens.cls.shape == (2, backbone.dim)
    assert tokens.patches.shape == (2, rows * columns, backbone.dim)
    for row in range(rows):
        for column in range(columns):
            cell = features[:, row, column] if channels_last else features[:, :, row, column]
            assert torch.equal(tokens.patches[:, row * columns + column], cell)
    torch.testing.assert_close(tokens.cls, sum(tokens.patches.unbind(1)) / (rows * columns))


def test_other_outputs_are_refused() -> None:
    """XCiT does not say which of its tokens are patches."""
    backbone = build_backbone("xcit_nano_12_p16_224", image_size=32, load_weights=False)
    with pytest.raises(NewkindsError, match="Xcit gives neither a feature map nor the tokens"):
        backbone(torch.zeros(1, 3, 32, 32))


def test_recommended_names_exist() -> None:
    for name, description in known_backbones():
        assert description
        if name != "tiny":
            assert timm.get_pretrained_cfg(name, allow_unregistered=False).hf_hub_id


# ----------------------------------------------------------------------------------------------- training
def trainable(backbone: Backbone) -> set[str]:
    return {name.removeprefix("network.") for name, p in backbone.named_parameters() if p.requires_grad}


def test_only_the_last_blocks_train() -> None:
    backbone = build_backbone("test_vit", train_blocks=2, load_weights=False)
    everything = {name for name, _ in backbone.network.named_parameters()}
    assert trainable(backbone) == {name for name in everything if name.startswith(("blocks.4.", "blocks.5."))}
    assert {"norm.weight", "pos_embed", "cls_token", "patch_embed.proj.weight"} <= everything


def test_the_final_norm_trains_if_it_shall_and_blocks_do() -> None:
    def trained(count: int) -> set[str]:
        network = build_backbone("tiny", train_blocks=count, train_norm=True).network
        return {name.split(".")[0] for name, parameter in network.named_parameters() if parameter.requires_grad}

    assert trained(1) == {"blocks", "norm"}
    assert trained(0) == set()
    pooled = timm.models.VisionTransformer(16, 8, embed_dim=12, depth=2, num_heads=2, global_pool="avg")
    Backbone(pooled, Preprocessing(16), 1, train_norm=True)
    assert pooled.fc_norm.weight.requires_grad  # type: ignore[union-attr]


def test_frozen_blocks_build_no_graph() -> None:
    backbone = build_backbone("test_vit", train_blocks=1, load_weights=False).train()
    needs_graph: list[bool] = []
    for block in backbone.network.blocks:
        block.register_forward_hook(lambda _module, _inputs, output: needs_graph.append(output.requires_grad))
    tokens = backbone(torch.randn(2, 3, 160, 160))
    assert needs_graph == [False] * 5 + [True]
    tokens.cls.sum().backward()
    learning = {name for name, p in backbone.network.named_parameters() if p.grad is not None}
    assert learning == trainable(backbone)


def test_zero_blocks_freeze_all() -> None:
    backbone = build_backbone("test_vit", train_blocks=0, load_weights=False)
    assert trainable(backbone) == set()
    assert not backbone(torch.randn(1, 3, 160, 160)).patches.requires_grad


@pytest.mark.parametrize(
    ("name", "stages", "last"),
    [("test_resnet", 4, "layer4."), ("test_convnext", 4, "stages.3."), ("regnetx_002", 4, "s4.")],
)
def test_blocks_of_a_cnn_are_its_stages(name: str, stages: int, last: str) -> None:
    backbone = build_backbone(name, load_weights=False)
    assert len(blocks_of(backbone.network)) == stages
    assert trainable(backbone) == {n for n, _ in backbone.network.named_parameters() if n.startswith(last)}


def test_training_mode_changes_nothing() -> None:
    """BatchNorm statistics stay, also in the stage that trains."""
    backbone = build_backbone("test_resnet", image_size=64, load_weights=False)
    images = torch.randn(4, 3, 64, 64)
    before, buffers = backbone.eval()(images).patches, [b.clone() for b in backbone.buffers()]
    torch.nn.Sequential(backbone).train()
    assert torch.equal(backbone(images).patches, before)
    assert all(torch.equal(old, new) for old, new in zip(buffers, backbone.buffers(), strict=True))


@pytest.mark.parametrize(
    ("name", "count", "allowed"),
    [
        ("test_vit", 7, "0 to 6"),
        ("test_vit", -1, "0 to 6"),
        ("test_resnet", 5, "0 to 4"),
        ("dla46_c", 1, "only 0"),
    ],
)
def test_impossible_train_blocks(name: str, count: int, allowed: str) -> None:
    with pytest.raises(NewkindsError, match=f"train_blocks={count} .* allows {allowed}"):
        build_backbone(name, train_blocks=count, load_weights=False)


# ---------------------------------------------------------------------------------------- names and sizes
@pytest.mark.parametrize("name", ["vit_base_patch16_224.dinoo", "vit_bse_patch16_224.dino"])
def test_unknown_name(name: str) -> None:
    with pytest.raises(NewkindsError, match=rf"'{name}'\. Did you mean 'vit_base_patch16_224\.dino'"):
        build_backbone(name)


@pytest.mark.parametrize(
    ("size", "advice"),
    [(60, "multiple of the patch size 8 of 'tiny'; use 56 or 64"), (5, "use 8"), (0, "not a size in pixels")],
)
def test_impossible_image_size(size: int, advice: str) -> None:
    with pytest.raises(NewkindsError, match=advice):
        build_backbone("tiny", image_size=size)


def test_architecture_alone_needs_no_file(tmp_path: Path) -> None:
    build_backbone("tiny", weights=str(tmp_path / "gone.pth"), load_weights=False)
