"""Frozen blocks in bfloat16: nearly the same features, float32 outside, nothing else changes."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from newkinds.encoders import frozen_precision
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.training.cache import _origin

VIT = "vit_tiny_patch16_224"
IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights in a file, so that both precisions have the same ones."""
    file = tmp_path_factory.mktemp("weights") / "vit.safetensors"
    torch.manual_seed(0)
    save_file(build_backbone(VIT, image_size=32, load_weights=False).network.state_dict(), file)
    return file


def backbone(weights: Path, precision: frozen_precision.FrozenPrecision, train_blocks: int = 0) -> Backbone:
    return build_backbone(VIT, str(weights), train_blocks, 32, precision=precision)


@pytest.mark.parametrize("patches", [True, False])
def test_features_are_nearly_the_same_and_float32(weights: Path, patches: bool) -> None:
    with torch.inference_mode():
        exact, rounded = (backbone(weights, name)(IMAGES, patches).cls for name in ("float32", "bfloat16"))
    assert rounded.dtype is torch.float32
    assert not torch.equal(exact, rounded), "bfloat16 rounds"
    assert F.cosine_similarity(exact, rounded).min() > 0.999


def test_cached_and_direct_tokens_are_the_same(weights: Path) -> None:
    half = backbone(weights, "bfloat16", train_blocks=1)
    with torch.inference_mode():
        direct = half(IMAGES)
        through_cache = half.trained_part(half.frozen_part(IMAGES))
    assert torch.equal(direct.cls, through_cache.cls)
    assert torch.equal(direct.patches, through_cache.patches)


def test_a_trained_block_is_computed_in_float32(weights: Path) -> None:
    """Given what the frozen blocks gave, the trained one gives the same in both precisions, gradients included."""
    exact, half = backbone(weights, "float32", train_blocks=1), backbone(weights, "bfloat16", train_blocks=1)
    sequence = exact.frozen_part(IMAGES)
    gradients = []
    for one in (exact, half):
        one.trained_part(sequence).cls.square().sum().backward()
        gradients.append(next(one.network.blocks[-1].parameters()).grad)
    assert torch.equal(gradients[0], gradients[1])


def test_caches_of_both_precisions_are_kept_apart(weights: Path) -> None:
    origins = [_origin(backbone(weights, name), 0, "float32", False, ("weak",)) for name in ("float32", "bfloat16")]
    assert origins[0] != origins[1]
    assert "computed_in" not in origins[0]["settings"], "caches of before stay valid"


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("native", [True, False])
def test_auto_is_bfloat16_on_a_processor_that_has_it_and_no_gpu(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, native: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: native, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    frozen_precision.multiplies_bfloat16.cache_clear()
    expected = torch.bfloat16 if native and not gpu else torch.float32
    assert frozen_precision.frozen_dtype("auto") is expected
    frozen_precision.multiplies_bfloat16.cache_clear()


def test_tiny_and_networks_of_convolutions_stay_float32() -> None:
    assert build_backbone("tiny", precision="bfloat16").dtype is torch.float32
    assert build_backbone("resnet10t", train_blocks=0, precision="bfloat16", load_weights=False).dtype is torch.float32
