"""CLIP models are built and filled as open_clip does it; nothing is downloaded unasked, and no file runs code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from naming import pictured
from newkinds import NewkindsError, suggest_names
from newkinds.discovery.suggest import TEMPLATES
from newkinds.encoders import clip as clips
from newkinds.encoders.clip import CONFIG, DEFAULT, WEIGHTS, load_clip

open_clip = pytest.importorskip("open_clip", reason="the extra newkinds[clip] is not installed")

TINY: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
PREPROCESS = {"mean": [0.5, 0.4, 0.3], "std": [0.3, 0.2, 0.25], "interpolation": "bilinear", "resize_mode": "squash"}
NOT_CAUSAL = {"text_cfg": {**TINY["text_cfg"], "no_causal_mask": True}}
OF_TIMM = {"vision_cfg": {"timm_model_name": "test_vit", "image_size": 160, "timm_pool": "", "timm_proj": "linear"}}
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "yellow": (230, 220, 40)}
Cli = Callable[..., tuple[int, str, str]]


def network(seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    layout = {name: value for name, value in {**TINY, **changes}.items() if name != "custom_text"}
    kind = open_clip.CustomTextCLIP if changes.get("custom_text") else open_clip.CLIP
    return kind(**layout)


def copied_model(folder: Path, trained: Any, **changes: Any) -> Path:
    """A folder as a model of the hub is."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_cfg": {**TINY, **changes}, "preprocess_cfg": PREPROCESS}
    (folder / CONFIG).write_text(json.dumps(config))
    save_file({name: value.contiguous() for name, value in trained.state_dict().items()}, folder / WEIGHTS[0])
    return folder


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP model that has learnt four colours by contrast, with various sentences."""
    model = network()
    folder = tmp_path_factory.mktemp("clip") / "colours"
    copied_model(folder, model)
    tokenizer = open_clip.get_tokenizer("ViT-B-32", context_length=20)
    texts = [tokenizer([t.replace("{}", word) for word in COLOURS]) for t in ("a {} thing", "{}", *TEMPLATES)]
    colours = torch.tensor(list(COLOURS.values())) / 255  # (4, 3)
    mean, std = (torch.tensor(PREPROCESS[name])[:, None, None] for name in ("mean", "std"))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(90):
        noisy = (colours[:, :, None, None] + 0.1 * torch.randn(4, 3, 32, 32)).clamp(0, 1)
        images, words, scale = model((noisy - mean) / std, texts[step % len(texts)])
        logits = scale * images @ words.T
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(4)) * 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1, "the model has not learnt its colours"
    return copied_model(folder, model)


@pytest.fixture
def photos_run(tmp_path: Path) -> Path:
    """Known classes of red and green images, called cat and dog; new ones of blue and yellow images."""
    of = list(COLOURS.values())
    return pictured(tmp_path, lambda category, _: of[category], new=2)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "words.txt"
    file.write_text("\n".join(COLOURS))
    return file


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of the hub; whoever asks the network fails the test."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: pytest.fail("asked the hub"))
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("asked the network"))
    return cache


# ------------------------------------------------------------------------------------------------ the whole way
def test_new_categories_are_named_by_what_they_show(photos_run: Path, words: Path, taught: Path, run_cli: Cli) -> None:
    status, out, err = run_cli("name", photos_run, "--suggest", "--words", words, "--clip", taught, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert {one["name"]: one["proposals"][0]["word"] for one in found["suggestions"]} == {
        "new-1": "blue", "new-2": "yellow",
    }  # fmt: skip
    assert all(one["proposals"][0]["agree"] == one["images"] == 6 for one in found["suggestions"])
    assert all(one["proposals"][0]["lead"] > 0.2 for one in found["suggestions"])
    assert found["model"] == "colours"


# ------------------------------------------------------------------------------------------------ as open_clip does it
@pytest.mark.parametrize("changes", [{}, {"quick_gelu": True}, {"custom_text": True}, NOT_CAUSAL, OF_TIMM])
def test_rows_are_those_of_open_clip(tmp_path: Path, offline: Path, changes: dict[str, Any]) -> None:
    folder = copied_model(tmp_path / "model", network(3, **changes), **changes)
    theirs, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    generator = np.random.default_rng(0)
    images = [Image.fromarray(generator.integers(0, 256, (h, w, 3), dtype=np.uint8)) for h, w in [(40, 60), (32, 32)]]
    texts = ["a photo of a Shiba Inu.", "柴犬"]
    ours = load_clip(folder)
    with torch.no_grad():
        expected = theirs.eval().encode_image(torch.stack(list(map(transform, images))), normalize=True).numpy()
        expected_texts = theirs.encode_text(tokenizer([*texts, "x " * 200]), normalize=True).numpy()
    np.testing.assert_allclose(ours.image_rows(images), expected, atol=1e-6)
    np.testing.assert_allclose(ours.text_rows(texts), expected_texts[:2], atol=1e-6)
    np.testing.assert_allclose(ours.text_rows([*texts, "x " * 200]), expected_texts, atol=1e-6)


def test_many_texts_are_read_in_parts(taught: Path) -> None:
    clip = load_clip(taught)
    texts = [f"number {n}" for n in range(2 * clips.AT_ONCE + 3)]
    np.testing.assert_allclose(clip.text_rows(texts)[-2:], clip.text_rows(texts[-2:]), atol=1e-6)


@pytest.fixture
def architectures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """open_clip knows two tiny architectures: of one there are two activations, which shapes do not tell apart."""
    known = {"tiny": TINY, "tiny-quickgelu": {**TINY, "quick_gelu": True}, "small": {**TINY, "embed_dim": 24}}
    monkeypatch.setattr("open_clip.factory._MODEL_CONFIGS", known)
    published = {"tiny": {"mine": {"hf_hub": "me/tiny/", "quick_gelu": True, "mean": (0.1, 0.2, 0.3)}}}
    monkeypatch.setattr("open_clip.pretrained._PRETRAINED", published)
    return known


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_weights_from_a_file(tmp_path: Path, architectures: dict[str, Any], prefix: str, ending: str) -> None:
    trained = network(5)
    state = {prefix + name: value for name, value in trained.state_dict().items()}
    file = tmp_path / f"weights{ending}"
    save_file(state, file) if ending == ".safetensors" else torch.save({"epoch": 3, "state_dict": state}, file)
    built = load_clip("tiny", weights=file)
    for name, value in built.network.state_dict().items():
        assert torch.equal(value, trained.state_dict()[name]), name
    assert built.network.visual.transformer.resblocks[0].mlp.gelu.__class__.__name__ == "GELU"
    tagged = load_clip("tiny:mine", weights=file)  # a tag says how its weights are to be used
    assert tagged.network.visual.transformer.resblocks[0].mlp.gelu.__class__.__name__ == "QuickGELU"
    assert tuple(tagged._view.transforms[-1].mean) == (0.1, 0.2, 0.3)


def test_the_architecture_of_a_file(tmp_path: Path, architectures: dict[str, Any]) -> None:
    save_file(network(1, embed_dim=24).state_dict(), small := tmp_path / "small.safetensors")
    assert load_clip(weights=small).name == load_clip(small).name == "small"
    save_file(network(1).state_dict(), tiny := tmp_path / "tiny.safetensors")
    with pytest.raises(NewkindsError, match="it may be tiny or tiny-quickgelu"):
        load_clip(tiny)
    save_file({"a": torch.zeros(2, 24)}, other := tmp_path / "other.safetensors")
    with pytest.raises(NewkindsError, match="no architecture that can be used here fits"):
        load_clip(other)


# ------------------------------------------------------------------------------------------------ bad files
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"embed_dim": 24}, r"text_projection is \(16, 24\), not \(16, 16\)"),
        ({"text_cfg": {**TINY["text_cfg"], "layers": 2}}, r"unknown to the CLIP model tiny \(transformer.resblocks.1"),
        ({"vision_cfg": {**TINY["vision_cfg"], "image_size": 64}}, r"visual.positional_embedding is \(17, 32\), not"),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, architectures: dict[str, Any], changes: Any, reason: str) -> None:
    save_file(network(0, **changes).state_dict(), file := tmp_path / "other.safetensors")
    with pytest.raises(NewkindsError, match=reason) as caught:
        load_clip("tiny", weights=file)
    assert str(file) in str(caught.value)


class NotThere(huggingface_hub.utils.EntryNotFoundError):
    def __init__(self) -> None:
        Exception.__init__(self, "404")


class Opened:
    def __reduce__(self) -> Any:
        return open, ("owned", "w")


@pytest.mark.filterwarnings("ignore:.*(TorchScript|torch.jit)")
def test_files_that_could_run_code_or_hold_no_weights(
    tmp_path: Path, architectures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": network().state_dict(), "more": Opened()}, "code.pt")
    with pytest.raises(NewkindsError, match=r"more than tensors \(the Python object"):
        load_clip("tiny", weights="code.pt")
    assert not Path("owned").exists()
    torch.jit.script(torch.nn.Linear(2, 2)).save("program.pt")
    with pytest.raises(NewkindsError, match=r"more than tensors \(a TorchScript program\)"):
        load_clip("tiny", weights="program.pt")
    state = network().state_dict()
    state["logit_scale"] = torch.tensor(float("nan"))
    save_file(state, "nan.safetensors")
    with pytest.raises(NewkindsError, match=r"logit_scale in .* NaN"):
        load_clip("tiny", weights="nan.safetensors")
    Path("page.safetensors").write_text("<html>Please sign in</html>")
    with pytest.raises(NewkindsError, match="damaged or not a weight file"):
        load_clip("tiny", weights="page.safetensors")
    with pytest.raises(NewkindsError, match="there is no weight file"):
        load_clip("tiny", weights="nowhere.pt")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("no json", "does not describe a CLIP model"),
        ("[]", "does not describe a CLIP model"),
        ('{"model_cfg": {"embed_dim": 4}}', "does not describe a CLIP model"),
        (json.dumps({"model_cfg": {**TINY, "surprise": 1}}), "cannot build .*surprise"),
        (json.dumps({"model_cfg": TINY, "preprocess_cfg": {"interpolation": "none"}}), "cannot build"),
        (json.dumps({"model_cfg": TINY, "preprocess_cfg": {"mode": "CMYK"}}), "cannot build"),
        (json.dumps({"model_cfg": {**TINY, "multimodal_cfg": {}}}), "writes captions"),
        (json.dumps({"model_cfg": {**TINY, "text_cfg": {"hf_tokenizer_name": "x/y"}}}), "another tokenizer"),
        (json.dumps({"model_cfg": {**TINY, "text_cfg": {"hf_model_name": "x/y"}}}), "another tokenizer"),
        (json.dumps({"model_cfg": {**TINY, "vision_cfg": {"timm_model_name": "hf-hub:x/y"}}}), "no name of timm"),
    ],
)
def test_a_description_from_a_stranger(tmp_path: Path, offline: Path, content: str, reason: str) -> None:
    folder = copied_model(tmp_path / "model", network())
    (folder / CONFIG).write_text(content)
    with pytest.raises(NewkindsError, match=reason):
        load_clip(folder)


def test_a_tower_of_timm_is_filled_from_the_file_alone(tmp_path: Path, offline: Path) -> None:
    asking = {"vision_cfg": {**OF_TIMM["vision_cfg"], "timm_model_pretrained": True}}
    trained = network(4, **OF_TIMM)
    loaded = load_clip(copied_model(tmp_path / "model", trained, **asking))
    now, then = (of.visual.trunk.patch_embed.proj.weight for of in (loaded.network, trained))
    assert torch.equal(now, then)


def test_a_folder_without_weights_or_description(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="holds no weights"):
        load_clip(tmp_path)
    folder = copied_model(tmp_path / "model", network())
    (folder / CONFIG).unlink()
    with pytest.raises(NewkindsError, match=r"open_clip_config.json .*No such file"):
        load_clip(folder)


# ------------------------------------------------------------------------------------------------ names and the network
def test_without_a_model_it_says_what_is_needed(photos_run: Path, offline: Path, run_cli: Cli) -> None:
    status, out, err = run_cli("name", photos_run, "--suggest")
    assert (status, out) == (1, "")
    said = "add --download, or set NEWKINDS_DOWNLOAD=1: ViT-B-32:laion2b_s34b_b79k (about 605 MB) is downloaded once"
    assert said in err
    assert "--clip ViT-B-32 --weights FILE" in err
    assert not (photos_run / "edits.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (DEFAULT, r"of ViT-B-32:laion2b_s34b_b79k \(about 605 MB\) are not on this machine.*laion/CLIP-ViT-B-32"),
        ("hf-hub:some/model", "of hf-hub:some/model are not on this machine, .* without your word: add --download"),
        ("ViT-B-32", r"is an architecture: .*--weights FILE, .*ViT-B-32:laion2b_s34b_b79k"),
        ("ViT-B-32:laion2b_s34b", r"no published weights .*Did you mean 'laion2b_s34b_b79k'\?"),
        ("ViT-B-23:openai", r"no CLIP model .*Did you mean 'ViT-B-32:openai'\?"),
        ("ViT-B-16-SigLIP:webli", "another tokenizer than open_clip's own"),
        ("hf-hub:", "write hf-hub:OWNER/MODEL"),
        ("hf-hub:../../x", "write hf-hub:OWNER/MODEL"),
    ],
)
def test_nothing_is_downloaded_unasked(offline: Path, name: str, reason: str) -> None:
    with pytest.raises(NewkindsError, match=reason):
        load_clip(name)
    assert not offline.exists()


def test_with_the_users_word_it_is_downloaded(
    tmp_path: Path, offline: Path, architectures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    torch.save(network(7).state_dict(), there := tmp_path / "there.bin")

    def hub(hub_id: str, file: str) -> str:
        asked.append((hub_id, file))
        if file.endswith(".safetensors"):
            raise NotThere  # an older model
        return str(there)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub)
    monkeypatch.setattr("newkinds.encoders.hub._connect", lambda _: None)
    clip = load_clip("tiny:mine", download=True)
    assert asked == [("me/tiny", WEIGHTS[0]), ("me/tiny", WEIGHTS[1])]
    assert torch.equal(clip.network.text_projection, network(7).text_projection)


def test_what_is_on_this_machine_is_taken(
    tmp_path: Path, offline: Path, architectures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clips, "DEFAULT", "small:none")
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "small", {"none": {"hf_hub": "me/small/"}})
    save_file(network(2).state_dict(), file := tmp_path / "cached.safetensors")
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda hub_id, _: str(file) if hub_id == "me/tiny" else None
    )
    assert load_clip().name == "tiny:mine"


def test_a_model_of_ones_own_needs_no_package(photos_run: Path, taught: Path) -> None:
    found = suggest_names(photos_run, list(COLOURS), load_clip(taught), templates=("a {} picture",))
    assert [one.proposals[0].word for one in found] == ["blue", "yellow"]
