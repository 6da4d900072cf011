"""Tokens as published; weight files of every naming load whole or not at all; only the last blocks train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from newkinds.data.views import Preprocessing
from newkinds.encoders import backbones
from newkinds.encoders import weights as checkpoints
from newkinds.encoders.backbones import Backbone, blocks_of, build_backbone, known_backbones
from newkinds.encoders.weights import load_weights
from newkinds.errors import NewkindsError

PARITY = np.load(Path(__file__).parents[1] / "numbers" / "tiny_vit.npz")
State = dict[str, Tensor]


def small_vit(size: int = 32, **changes: Any) -> VisionTransformer:
    """The architecture of the parity case: patches of 8, 2 blocks of width 24."""
    layout: dict[str, Any] = {"patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 0}
    return VisionTransformer(img_size=size, **{**layout, **changes})


def parity_state() -> State:
    return {name[6:]: torch.from_numpy(PARITY[name]) for name in PARITY if name.startswith("param.")}


def prefixed(prefix: str, state: State) -> State:
    return {prefix + name: value for name, value in state.items()}


def saved(content: Any, file: Path) -> Path:
    if file.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in content.items()}, file)
    else:
        torch.save(content, file)
    return file


def assert_same_state(network: torch.nn.Module, expected: State) -> None:
    state = network.state_dict()
    assert set(state) == set(expected)
    for name, value in state.items():
        assert value.dtype == expected[name].dtype
        assert torch.equal(value, expected[name]), name


# ------------------------------------------------------------------------------------------------- parity
@pytest.mark.parametrize(("size", "images", "tokens"), [(32, "x", "tokens"), (48, "x48", "tokens48")])
def test_tokens_of_the_published_vit(tmp_path: Path, size: int, images: str, tokens: str) -> None:
    """At its own size, and at a larger one, for which the position embeddings are resized."""
    network = small_vit(size)
    load_weights(network, saved(prefixed("module.backbone.", parity_state()), tmp_path / "dino.safetensors"))
    backbone = Backbone(network, Preprocessing(size))

    given = backbone(torch.from_numpy(PARITY[images]))

    expected = torch.from_numpy(PARITY[tokens])
    assert given.grid == (size // 8, size // 8)
    torch.testing.assert_close(given.cls, expected[:, 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(given.patches, expected[:, 1:], atol=1e-5, rtol=0)


def test_resizing_of_timm_would_not_match() -> None:
    """Why there is a resizing of our own: timm's differs by far more than rounding."""
    embedding = parity_state()["pos_embed"]
    ours = checkpoints.resize_position_embedding(embedding, 6)
    theirs = timm.layers.resample_abs_pos_embed(embedding, [6, 6], num_prefix_tokens=1)
    assert ours.shape == theirs.shape == (1, 37, 24)
    assert torch.equal(ours[:, 0], embedding[:, 0])
    assert (ours - theirs).abs().max() > 1e-3


# ------------------------------------------------------------------------------------------------- naming
def chunked(state: State) -> State:
    """As DINOv2 saves while it trains: blocks.<chunk>.<block>."""
    return {name.replace("blocks.0.", "blocks.0.0.").replace("blocks.1.", "blocks.1.1."): value
            for name, value in state.items()}  # fmt: skip


def with_heads(state: State) -> State:
    extra = ["head.weight", "dino_head.mlp.0.weight", "ibot_head.mlp.0.bias", "mask_token", "fc.weight"]
    return {**state, **{name: torch.ones(2, 2) for name in extra}}


def other_numbers(state: State) -> State:
    return {name: torch.zeros_like(value) for name, value in state.items()}


WRAPPERS: dict[str, Callable[[State], Any]] = {
    "plain": dict,
    "heads": with_heads,
    "module": lambda s: prefixed("module.", s),
    "module.backbone": lambda s: prefixed("module.backbone.", s),
    "backbone and head": lambda s: {**prefixed("backbone.", s), "head.0.weight": torch.ones(3)},
    "state_dict": lambda s: {"state_dict": prefixed("module.encoder.", s), "epoch": 3},
    "model": lambda s: {"model": s, "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}},
    "student first": lambda s: {
        "student": prefixed("module.backbone.", with_heads(other_numbers(s))),
        "teacher": prefixed("backbone.", with_heads(s)),
    },
    "flat teacher": lambda s: {**prefixed("student.", other_numbers(s)), **prefixed("teacher.", s)},
    "chunked": lambda s: {"teacher": prefixed("backbone.", chunked(s))},
    "backbone in a sequence": lambda s: {"model": {**prefixed("0.", s), "1.mlp.0.weight": torch.ones(2, 2)}},
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_names_and_wrappers(tmp_path: Path, wrapper: str) -> None:
    network = small_vit()
    load_weights(network, saved(WRAPPERS[wrapper](parity_state()), tmp_path / "weights.pth"))
    assert_same_state(network, parity_state())


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(tmp_path: Path, precision: torch.dtype) -> None:
    halves = {name: value.to(precision) for name, value in parity_state().items()}
    network = small_vit()
    load_weights(network, saved(halves, tmp_path / "half.safetensors"))
    assert_same_state(network, {name: value.float() for name, value in halves.items()})


def test_official_dinov2_with_registers(tmp_path: Path) -> None:
    """Registers have another name there, and the class token a position of its own that timm adds to it."""
    reference = small_vit(size=28, patch_size=14, init_values=0.1, reg_tokens=4, no_embed_class=True)
    official = reference.state_dict()
    official["register_tokens"] = official.pop("reg_token")
    class_position = torch.randn(1, 1, 24)
    official["pos_embed"] = torch.cat([class_position, torch.randn(1, 25, 24)], dim=1)
    official["mask_token"] = torch.zeros(1, 24)

    network = small_vit(size=28, patch_size=14, init_values=0.1, reg_tokens=4, no_embed_class=True)
    load_weights(network, saved(official, tmp_path / "dinov2_reg4.pth"))

    assert torch.equal(network.reg_token, official["register_tokens"])
    assert torch.equal(network.cls_token, official["cls_token"] + class_position)
    assert network.pos_embed.shape == (1, 4, 24)  # resized from 5 × 5, without the class position
    assert torch.equal(network.blocks[1].ls2.gamma, official["blocks.1.ls2.gamma"])


def small_dinov3(**changes: Any) -> Eva:
    layout: dict[str, Any] = {
        "img_size": 32, "patch_size": 16, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 0,
        "qkv_bias": False, "init_values": 0.1, "num_reg_tokens": 4, "use_fc_norm": False,
        "rope_type": "dinov3", "use_rot_pos_emb": True, "use_abs_pos_emb": False, "dynamic_img_size": True,
    }  # fmt: skip
    return Eva(**{**layout, **changes})


def official_dinov3(reference: Eva, bias: float) -> State:
    official = {
        name.replace("gamma_", "ls").replace("ls1", "ls1.gamma").replace("ls2", "ls2.gamma"): value
        for name, value in reference.state_dict().items()
    }
    official["storage_tokens"] = official.pop("reg_token")
    official["mask_token"] = torch.zeros(1, 24)
    official["rope_embed.periods"] = torch.ones(3)
    for block in range(2):
        official[f"blocks.{block}.attn.qkv.bias"] = torch.full((72,), bias)
        official[f"blocks.{block}.attn.qkv.bias_mask"] = torch.ones(72)
    return official


def test_official_dinov3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference, network = small_dinov3(), small_dinov3()
    load_weights(network, saved(official_dinov3(reference, bias=0.0), tmp_path / "dinov3.pth"))
    assert_same_state(network, reference.state_dict())
    assert capsys.readouterr().out == ""


def test_biases_that_matter_are_not_dropped(tmp_path: Path) -> None:
    file = saved(official_dinov3(small_dinov3(), bias=0.5), tmp_path / "dinov3.pth")
    with pytest.raises(NewkindsError, match=r"unknown to the backbone \(blocks.0.attn.qkv.bias"):
        load_weights(small_dinov3(), file)


def test_original_convnext_names(tmp_path: Path) -> None:
    """One of the other families that timm converts: stages and head are named differently by its authors."""
    reference = timm.create_model("test_convnext", num_classes=0)
    renamed = [
        ("stem.", "downsample_layers.0."), (".blocks.", "."), ("conv_dw", "dwconv"), ("mlp.fc1", "pwconv1"),
        ("mlp.fc2", "pwconv2"), ("head.norm", "norm"),
    ]  # fmt: skip
    official: State = {}
    for name, value in reference.state_dict().items():
        if ".downsample." in name:
            stage, part = name.removeprefix("stages.").split(".downsample.")
            name = f"downsample_layers.{stage}.{part}"
        for ours, theirs in renamed:
            name = name.replace(ours, theirs)
        official[name] = value
    official["head.weight"] = torch.ones(5, 2)

    network = timm.create_model("test_convnext", num_classes=0)
    load_weights(network, saved(official, tmp_path / "convnext.pth"))
    assert_same_state(network, reference.state_dict())


def test_old_resnet_file_without_batch_counters(tmp_path: Path) -> None:
    reference = timm.create_model("test_resnet", num_classes=3)
    old = {n: v for n, v in reference.state_dict().items() if not n.endswith("num_batches_tracked")}
    network = timm.create_model("test_resnet", num_classes=0)
    load_weights(network, saved(old, tmp_path / "resnet.pth"))
    assert torch.equal(network.state_dict()["layer4.0.bn1.weight"], old["layer4.0.bn1.weight"])


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


# ---------------------------------------------------------------------------------------------- bad input
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


def test_another_architecture_is_named(tmp_path: Path) -> None:
    file = saved(parity_state(), tmp_path / "small.safetensors")
    with pytest.raises(NewkindsError) as caught:
        build_backbone("tiny", weights=str(file))
    message = str(caught.value)
    assert str(file) in message
    wanted = set(backbones.tiny_vit().state_dict())
    counted = {name for name in wanted if not name.endswith("num_batches_tracked")}  # counters may be absent
    missing = counted - set(parity_state())
    assert f"{len(missing)} of {len(wanted)} tensors are missing (patch_embed.backbone.0.conv.weight," in message
    assert "cls_token is (1, 1, 24), not (1, 1, 96)" in message
    assert "newkinds list backbones" in message


def test_a_cnn_file_for_a_vit(tmp_path: Path) -> None:
    file = saved(timm.create_model("test_resnet").state_dict(), tmp_path / "resnet.pth")
    with pytest.raises(NewkindsError, match=r"69 of 72 tensors are missing .*; 90 are unknown"):
        build_backbone("tiny", weights=str(file))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"depth": 3}, r"unknown to the backbone \(blocks.2"),
        ({"init_values": 0.1}, r"unknown to the backbone \(blocks.0.ls1.gamma"),
        ({"patch_size": 4}, r"patch_embed.proj.weight is \(24, 3, 4, 4\), not \(24, 3, 8, 8\)"),
        ({"reg_tokens": 4, "no_embed_class": True}, "reg_token"),
    ],
)
def test_nothing_is_adapted_in_silence(tmp_path: Path, source: dict[str, Any], reason: str) -> None:
    file = saved(small_vit(**source).state_dict(), tmp_path / "other.pth")
    with pytest.raises(NewkindsError, match=reason):
        load_weights(small_vit(), file)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"there is no weight file .*nowhere\.pth"):
        build_backbone("tiny", weights=str(tmp_path / "nowhere.pth"))
    with pytest.raises(NewkindsError, match="is a folder"):
        build_backbone("tiny", weights=str(tmp_path))


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("keep", [0, 1, 1000])
def test_truncated_file(tmp_path: Path, suffix: str, keep: int) -> None:
    file = saved(parity_state(), tmp_path / f"weights{suffix}")
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(NewkindsError, match=rf"weights\{suffix} is damaged or not a weight file"):
        load_weights(small_vit(), file)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_web_page_instead_of_weights(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"weights{suffix}"
    file.write_text("<!doctype html><html><body>Please sign in</body></html>")
    with pytest.raises(NewkindsError, match="is damaged or not a weight file"):
        load_weights(small_vit(), file)


class RunsCode:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.victim,))


def test_code_in_a_pickle_is_not_run(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    file = saved({**parity_state(), "extra": RunsCode(victim)}, tmp_path / "evil.pth")
    with pytest.raises(NewkindsError, match=r"holds more than tensors .* could run code"):
        load_weights(small_vit(), file)
    assert not victim.exists()


@pytest.mark.parametrize("content", [{"epoch": 3}, [torch.ones(2)], torch.ones(2)])
def test_no_tensors_inside(tmp_path: Path, content: Any) -> None:
    with pytest.raises(NewkindsError, match="holds no named tensors"):
        load_weights(small_vit(), saved(content, tmp_path / "notes.pt"))


# ------------------------------------------------------------------------------------------------ network
def test_without_network_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(NewkindsError) as caught:
        build_backbone("test_vit")
    message = str(caught.value)
    assert "https://huggingface.co/timm/test_vit.r160_in1k/resolve/main/model.safetensors" in message
    assert "--weights FILE" in message
    assert "'tiny'" in message


def test_unreachable_hub_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hub's library is not even asked: it would retry for most of a minute."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_: pytest.fail("asked the hub"))
    with pytest.raises(NewkindsError, match="cannot be downloaded"):
        build_backbone("test_vit")


def test_weights_in_the_cache_of_the_hub_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published = timm.create_model("test_vit")
    file = saved(published.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: str(file))
    backbone = build_backbone("test_vit")
    assert torch.equal(backbone.network.blocks[0].attn.qkv.weight, published.blocks[0].attn.qkv.weight)


def test_model_that_nobody_trained() -> None:
    with pytest.raises(NewkindsError, match=r"no pretrained weights for 'darknet17': .*--weights FILE"):
        build_backbone("darknet17")


def test_model_outside_the_hub() -> None:
    with pytest.raises(NewkindsError, match=r"not on the model hub: download https://.*\.pth"):
        build_backbone("legacy_seresnet18")


def test_architecture_alone_needs_no_file(tmp_path: Path) -> None:
    build_backbone("tiny", weights=str(tmp_path / "gone.pth"), load_weights=False)
