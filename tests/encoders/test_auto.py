"""Which backbone is taken if nobody names one, and which settings suit it."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

import newkinds
from newkinds.encoders import auto, families, hub
from newkinds.encoders.auto import LARGE, OTHERS, SMALL, backbone_of, choose_backbone
from newkinds.encoders.families import FAMILIES, family_of, family_shown
from newkinds.errors import NewkindsError
from newkinds.runs.config import resolve
from newkinds.settings import find_recipe, read_recipe

CPU = torch.device("cpu")


@pytest.fixture
def nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(auto.VARIABLE, raising=False)
    monkeypatch.setattr(auto, "cached_file", lambda _: None)


def test_a_weight_file_tells_its_backbone(tmp_path: Path) -> None:
    """Shapes alone; of the original authors' names too, which count blocks in chunks."""
    shapes = {"patch_embed.proj.weight": (384, 3, 14, 14), "pos_embed": (1, 1370, 384), "blocks.0.11.ls1.gamma": (384,)}
    shapes |= {f"blocks.0.{block}.attn.qkv.weight": (3, 3) for block in range(12)}
    save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, tmp_path / "w.safetensors")
    assert backbone_of(tmp_path / "w.safetensors") == "vit_small_patch14_dinov2"
    save_file({"fc.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(NewkindsError, match=r"other\.safetensors does not tell which backbone it is of"):
        backbone_of(tmp_path / "other.safetensors")


def test_no_two_backbones_look_alike() -> None:
    seen = []
    for name in (*SMALL, *LARGE, *OTHERS):
        with torch.device("meta"):
            seen.append(auto._traits(timm.create_model(name, num_classes=0).state_dict()))
    assert None not in seen
    assert all(seen.count(shapes) == 1 for shapes in seen)


def test_what_is_on_the_machine_comes_before_a_download(nothing_there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {auto._hub_id(LARGE[0]), auto._hub_id(SMALL[2])}
    monkeypatch.setattr(auto, "cached_file", lambda hub: Path("file") if hub in there else None)
    assert choose_backbone(None, True, CPU) == SMALL[2]
    assert choose_backbone(None, True, torch.device("meta")) == LARGE[0], "large ones first, if that is not a CPU"
    assert choose_backbone(None, False, CPU) == "tiny"
    monkeypatch.setenv(auto.VARIABLE, "mine")
    assert choose_backbone(None, True, CPU) == "mine"


def test_without_network_and_weights_the_message_offers_what_can_be_done(
    nothing_there: None, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_connect", lambda _: (_ for _ in ()).throw(OSError("no network")))
    monkeypatch.setattr(hub, "cached_file", lambda *_: None)
    for word, offer in (("0", f"set NEWKINDS_DOWNLOAD=1: {SMALL[0]} (about 88 MB)"), ("1", "(no network)")):
        monkeypatch.setenv("NEWKINDS_DOWNLOAD", word)
        with pytest.raises(NewkindsError) as caught:
            newkinds.discover(photos, tmp_path / "run")
        for part in (offer, "add --weights FILE", "add --backbone tiny"):
            assert part in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_nobody_is_asked_to_download_a_backbone_for_an_empty_folder(
    nothing_there: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "cached_file", lambda *_: None)
    monkeypatch.setenv("NEWKINDS_DOWNLOAD", "0")
    (tmp_path / "photos" / "unlabeled").mkdir(parents=True)
    with pytest.raises(NewkindsError, match="there is no image in the folder"):
        newkinds.discover(tmp_path / "photos", tmp_path / "run")


def test_photographs_are_not_shown_to_tiny_in_silence(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    newkinds.discover(photos, tmp_path / "run", k=3, backbone="tiny", method="frozen")
    assert "knows drawn creatures only" in capfd.readouterr().err
    newkinds.discover("creatures", tmp_path / "drawn", method="frozen", settings={"data": {"per_category": 4}})
    assert "knows drawn creatures only" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("vit_small_patch14_dinov2", "DINOv2"), ("vit_base_patch14_reg4_dinov2.lvd142m", "DINOv2"),
        ("convnext_tiny.dinov3_lvd1689m", "DINOv3"), ("vit_base_patch16_224.dino", "DINO"), ("tiny", "tiny"),
        ("vit_base_patch16_clip_224.openai", "CLIP"), ("resnet50", "CNN"), ("vit_base_patch16_224", "supervised"),
    ],
)  # fmt: skip
def test_families(name: str, family: str) -> None:
    assert family_of(name).name == family


def test_settings_follow_the_family_and_the_user_follows_neither() -> None:
    data = {"data": {"name": "creatures"}}
    careful = {"backbone": {"name": "vit_small_patch14_dinov2"}}
    assert resolve(data).train.backbone_lr_ratio == 1
    assert resolve(data, careful).train.backbone_lr_ratio == 0.01
    assert resolve(data, careful, {"train": {"backbone_lr_ratio": 0.5}}).train.backbone_lr_ratio == 0.5
    assert resolve(data, careful, {"organizer": {"name": "cpf"}}).organizer["readout"] == "gated"
    assert resolve(data, {"organizer": {"name": "cpf"}}).organizer["readout"] == "literal"
    assert all(family.evidence for family in FAMILIES)


LAYER = ("blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight", "norm.weight")
BARE = ("cls_token", "pos_embed", "patch_embed.proj.weight", *LAYER)


@pytest.mark.parametrize(
    ("tensors", "family"),
    [
        ((*BARE, "head.weight"), "supervised"),
        ((*BARE, "blocks.0.ls1.gamma"), "DINOv2"),
        ((*BARE, "blocks.0.ls1.gamma", "mask_token", "register_tokens"), "DINOv2"),
        ((*BARE, "blocks.0.ls1.gamma", "head.weight"), "supervised"),  # DeiT III
        (("cls_token", "storage_tokens", "blocks.0.ls1.gamma", "rope_embed.periods", *LAYER), "DINOv3"),
        (("cls_token", "reg_token", "blocks.0.gamma_1", *LAYER), "DINOv3"),  # in timm
        (tuple(f"teacher.backbone.{name}" for name in BARE), "DINO"),
        ((*BARE, "head.mlp.0.weight", "head.last_layer.weight_v"), "DINO"),
        ((*BARE, "norm_pre.weight", "head.weight"), "CLIP"),
        ((*BARE, "decoder_embed.weight", "mask_token"), None),
        (("cls_token", "blocks.0.gamma_1", "blocks.0.attn.relative_position_bias_table", *LAYER), None),
        (BARE, None),
        (("conv1.weight", "fc.weight"), None),
    ],
)
def test_a_weight_file_shows_its_family(tensors: tuple[str, ...], family: str | None) -> None:
    assert family_shown(dict.fromkeys(tensors, (4, 4))) == family


def test_the_family_is_that_of_the_file_and_not_of_the_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A name without a tag is timm's for an architecture: the file says what its weights are of."""

    def ratio(*names: str, backbone: str = "vit_base_patch16_224", **more: str) -> float:
        file = tmp_path / f"{len(names)}.safetensors"
        save_file({name: torch.zeros(4, 4) for name in names}, file)
        settings = {"name": backbone, "weights": str(file), **more}
        return resolve({"data": {"name": "creatures"}, "backbone": settings}).train.backbone_lr_ratio

    assert ratio(*BARE, "head.weight") == 0.01
    assert ratio(*BARE, "head.weight", backbone="vit_base_patch16_224.dino") == 0.01
    assert ratio(*BARE, "head.last_layer.weight_v", "head.mlp.0.weight") == 1
    assert capfd.readouterr().err == ""
    assert ratio(*BARE) == 1
    said = " ".join(capfd.readouterr().err.split())
    assert "does not show how it was pretrained" in said
    assert "--set backbone.family=supervised" in said
    assert ratio(*BARE, family="supervised") == 0.01
    assert ratio(*BARE, backbone="vit_base_patch16_224.mae") == 0.01, "a tag says which weights are meant"
    assert ratio(*BARE, "blocks.0.ls1.gamma", family="none") == 1, "the published settings"
    assert capfd.readouterr().err == ""


def test_a_recipe_keeps_the_published_form_with_any_backbone() -> None:
    layers = read_recipe(find_recipe("simgcd/cub")), {"organizer": {"name": "cpf"}}
    config = resolve(*layers, {"backbone": {"name": "vit_small_patch14_dinov2"}})
    assert (config.organizer["readout"], config.train.backbone_lr_ratio) == ("literal", 1)


def test_a_runs_own_settings_need_no_weight_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({name: torch.zeros(4, 4) for name in BARE}, tmp_path / "w.safetensors")
    named = {"name": "vit_base_patch16_224", "weights": str(tmp_path / "w.safetensors")}
    config = resolve({"data": {"name": "creatures"}, "backbone": named, "organizer": {"name": "cpf"}})
    monkeypatch.setattr(families, "read_shapes", lambda file: pytest.fail(f"{file} is read"))
    families._family_in.cache_clear()
    assert resolve(config.as_dict()) == config
