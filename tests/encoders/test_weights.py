"""Weight files of every naming load whole, and give the tokens that were published; where they come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
from timm.models.eva import Eva

from newkinds.data.views import Preprocessing
from newkinds.encoders import weights as checkpoints
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.weights import load_weights
from newkinds.errors import NewkindsError
from weight_files import PARITY, State, assert_same_state, parity_state, prefixed, saved, small_vit


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


# ------------------------------------------------------------------------------------------------ network
def test_without_network_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("NEWKINDS_DOWNLOAD", "1")
    with pytest.raises(NewkindsError) as caught:
        build_backbone("test_vit")
    message = str(caught.value)
    assert "https://huggingface.co/timm/test_vit.r160_in1k/resolve/main/model.safetensors" in message
    assert "--weights FILE" in message
    assert "--backbone tiny" in message


def test_unreachable_hub_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hub's library is not even asked: it would retry for most of a minute."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("NEWKINDS_DOWNLOAD", "1")
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
