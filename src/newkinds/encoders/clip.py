"""CLIP models, which put images and words into one space, built by the factory of the package open_clip, an extra.

The factory would download what is missing, and load what nearly fits, so it is never asked for weights: they are found
here, downloaded only with the user's word, and read as tensors alone."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.func import functional_call

from ..console import silence
from ..errors import NewkindsError, nearest
from ..files import user_path
from .hub import THE_WORD, NoWord, cached_file, pretrained_file, size_of
from .weights import fill, read_tensors, without_prefix

DEFAULT = "ViT-B-32:laion2b_s34b_b79k"
HUB = "hf-hub:"  # as open_clip writes it
CONFIG = "open_clip_config.json"  # what an architecture is called in a model of the hub
WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
UNNEEDED = re.compile(r"(input_resolution|context_length|vocab_size|attn_mask)$")  # numbers that some files hold
WORDS = 49408  # that the tokenizer of open_clip knows
AT_ONCE = 64  # images or texts
INSTALL = "naming by words needs the package open_clip: pip install 'newkinds[clip]'"
BY_FILE = "--clip ViT-B-32 --weights FILE (ViT-B-32:openai, and likewise, for weights that OpenAI trained)"


class TwoTowers(Protocol):
    """Whatever puts images and texts into one space, so that their cosine says how well they fit."""

    name: str

    def image_rows(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """(n, D) unit rows of RGB images."""

    def text_rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, D) unit rows of texts."""


class ClipSource(NamedTuple):
    """A CLIP model before it is built."""

    name: str  # as the user called it
    factory: str  # as open_clip's factory calls it: an architecture, or "local-dir:" and a folder with CONFIG
    weights: Path
    tag: Mapping[str, Any]  # what open_clip knows of published weights: activation, preparation of images


class Clip:
    """A CLIP model of open_clip.

    >>> clip = load_clip("ViT-B-32:laion2b_s34b_b79k")
    >>> clip.image_rows([image]) @ clip.text_rows(["a photo of a corgi."]).T
    """

    def __init__(self, source: ClipSource, device: torch.device) -> None:
        open_clip = require_open_clip()
        network, self._view = _build(source.factory, source.name, source.tag)
        state = _state(read_tensors(source.weights), network)
        advice = "Name the architecture they are of (--clip), or pass other weights."
        fill(network, state, source.weights, f"the CLIP model {source.name}", UNNEEDED, advice)
        self.name = source.name
        self.weights = source.weights
        self.device = device
        self.network = network.to(device).eval()
        self._is_causal = (
            type(network) is open_clip.CLIP and network.attn_mask is not None and network.text_pool_type == "argmax"
        )
        self._tokens = open_clip.get_tokenizer(source.factory)

    @torch.inference_mode()
    def image_rows(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """(n, D) unit rows of RGB images."""
        rows = [
            self.network.encode_image(torch.stack([self._view(image) for image in some]).to(self.device))
            for some in _batches(images)
        ]
        return _unit(torch.cat(rows), self)

    @torch.inference_mode()
    def text_rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, D) unit rows of texts."""
        rows = [self._text_features(self._tokens(list(some)).to(self.device)) for some in _batches(texts)]
        return _unit(torch.cat(rows), self)

    def _text_features(self, tokens: Tensor) -> Tensor:
        """(n, D) of (n, L). In a causal tower nothing after the end of a text matters, so that it is not computed."""
        network = self.network
        if not self._is_causal:
            return network.encode_text(tokens)
        used = int(tokens.argmax(dim=1).max()) + 1  # the end of a text is the largest of all tokens
        shorter = {
            "positional_embedding": network.positional_embedding[:used],
            "attn_mask": network.attn_mask[:used, :used],
        }
        return functional_call(network, shorter, (None, tokens[:, :used]))[1]


def load_clip(
    clip: str | Path | None = None,
    weights: str | Path | None = None,
    download: bool = False,
    device: torch.device | None = None,
) -> Clip:
    """A CLIP model by name and weights.

    clip: NAME:TAG of published weights, NAME with `weights`, hf-hub:OWNER/MODEL, a folder that holds a copy of such a
        model, or a weight file beside its open_clip_config.json; None: what is on this machine.
    weights: a .safetensors or .pth file.
    download: whether published weights that are not on this machine may be downloaded.

    >>> load_clip("ViT-B-32", weights="open_clip_model.safetensors")
    """
    return Clip(_find(clip, weights, download), device or torch.device("cpu"))


def require_open_clip() -> ModuleType:
    try:
        import open_clip
    except ImportError:
        raise NewkindsError(f"{INSTALL}. It needs the weights of a CLIP model too, e.g. {BY_FILE}.") from None
    return open_clip


def _find(clip: str | Path | None, weights: str | Path | None, download: bool) -> ClipSource:
    """The model that is meant; an error says what is needed."""
    open_clip = require_open_clip()
    file = None if weights is None else user_path(weights)
    if clip is None and (clip := file or _on_this_machine(open_clip)) is None:
        try:
            return _find_published(open_clip, DEFAULT, None, download)
        except NoWord as error:
            raise NewkindsError(_nothing_here(error.what)) from None
    text = str(clip)
    if text.partition(":")[0] in open_clip.list_models():  # even if a file is called so: write ./NAME for that
        return _find_published(open_clip, text, file, download)
    if text.startswith(HUB):
        hub_id = text.removeprefix(HUB)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub_id) or ".." in hub_id:
            raise NewkindsError(f"'{text}' is no model of the hub: write {HUB}OWNER/MODEL.")
        factory = _in_folder(_hub_file(text, hub_id, (CONFIG,), download))
        return ClipSource(text, factory, file or _hub_file(text, hub_id, WEIGHTS, download, factory), {})
    path = user_path(text)
    if path.is_dir():
        own = [path / name for name in WEIGHTS if (path / name).is_file()]
        if file is None and not own:
            raise NewkindsError(f"{path} holds no weights ({' or '.join(WEIGHTS)}): name them by --weights FILE.")
        return ClipSource(path.name, _in_folder(path / CONFIG), file or own[0], {})
    if path.is_file() and path.with_name(CONFIG).is_file():
        return ClipSource(path.name, _in_folder(path.with_name(CONFIG)), path, {})
    if path.is_file():
        name = _architecture_by_shapes(open_clip, path)
        return ClipSource(name, name, path, {})
    raise NewkindsError(
        f"there is no CLIP model '{text}', and no such file or folder.{nearest(text, _list_published(open_clip))} "
        f"Name one that open_clip knows, such as {DEFAULT}, or a file: {BY_FILE}."
    )


def _find_published(open_clip: ModuleType, text: str, file: Path | None, download: bool) -> ClipSource:
    """NAME or NAME:TAG. The tag says how images are prepared and which activation the model has, even with a file."""
    name, _, tag = text.partition(":")
    tags = open_clip.list_pretrained_tags_by_model(name)
    published = open_clip.get_pretrained_cfg(name, tag) if tag else {}
    shown = ", ".join(f"{name}:{one}" for one in tags) or "none"
    if tag and not published:
        raise NewkindsError(f"there are no published weights '{text}'.{nearest(tag, tags)} Published are: {shown}.")
    if file is not None:
        return ClipSource(text, name, file, published)
    if not tag:
        raise NewkindsError(
            f"{name} is an architecture: name its weights by --weights FILE, or published ones by NAME:TAG ({shown})."
        )
    hub_id, weights = os.path.split(published["hf_hub"])
    files = (str(Path(weights).with_suffix(".safetensors")), weights) if weights else WEIGHTS
    return ClipSource(text, name, _hub_file(text, hub_id, files, download, name), published)


def _hub_file(name: str, hub_id: str, files: Sequence[str], download: bool, factory: str | None = None) -> Path:
    """A file from the cache of the hub; if it is not there, it is downloaded only with the user's word."""
    size = str if factory is None else partial(size_of, partial(_shapes, factory, name))
    otherwise = "or name the folder of a copy by --clip FOLDER"
    return pretrained_file(name, hub_id, files=files, otherwise=otherwise, size=size, allowed=download)


def _nothing_here(what: str) -> str:
    return (
        "naming by words needs a CLIP model, and there is none on this machine. What you can do:\n"
        f"  with a network:      {THE_WORD}: {what} is downloaded once\n"
        f"  with a weight file:  add {BY_FILE}\n"
        f"  with a copied model: add --clip FOLDER, which holds {CONFIG} and {WEIGHTS[0]}"
    )


def _list_published(open_clip: ModuleType) -> list[str]:
    return [f"{name}:{tag}" for name, tag in open_clip.list_pretrained()]


def _on_this_machine(open_clip: ModuleType) -> str | None:
    """Published weights that the cache of the hub holds and that can be used here; the default ones come first."""
    for name in (DEFAULT, *_list_published(open_clip)):
        architecture, tag = name.split(":")
        hub_id, weights = os.path.split(open_clip.get_pretrained_cfg(architecture, tag).get("hf_hub", ""))
        usable = hub_id and not weights and not _unusable(open_clip.get_model_config(architecture))
        if usable and cached_file(hub_id, WEIGHTS) is not None:
            return name
    return None


def _in_folder(config: Path) -> str:
    """The folder of a description as open_clip's factory calls it, if that is what it is."""
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
        model = content["model_cfg"]
        preprocess = content.get("preprocess_cfg") or {}
        if not all(isinstance(part, dict) for part in (preprocess, model, model["vision_cfg"], model["text_cfg"])):
            raise TypeError("it is not an object of objects")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NewkindsError(
            f"{config} does not describe a CLIP model ({reason}): copy it again from the hub, or name the architecture "
            f"and the weights: {BY_FILE}."
        ) from None
    return f"local-dir:{config.parent}"


def _architecture_by_shapes(open_clip: ModuleType, file: Path) -> str:
    """The architecture of a weight file, if its tensors fit one alone: activations do not show in shapes."""
    tensors = read_tensors(file)
    fits = []
    for name in open_clip.list_models():
        config = open_clip.get_model_config(name)
        # a network is built only if the file may be of it
        if _unusable(config) or not any(value.shape[-1:] == (config["embed_dim"],) for value in tensors.values()):
            continue
        wanted = {key: value.shape for key, value in _shapes(name, name).state_dict().items()}
        state = without_prefix(tensors, wanted)
        if {key: value.shape for key, value in state.items() if not UNNEEDED.match(key)} == wanted:
            fits.append(name)
    if len(fits) == 1:
        return fits[0]
    which = f"it may be {' or '.join(fits)}" if fits else f"no architecture that can be used here fits, e.g. {BY_FILE}"
    raise NewkindsError(f"{file} does not tell which CLIP model it is of ({which}): say --clip NAME --weights FILE.")


def _unusable(config: dict[str, Any]) -> str:
    """Why a model cannot be used here, or an empty string; a description may come from a stranger."""
    vision, text = config["vision_cfg"], config["text_cfg"]
    own_words = text.get("vocab_size", WORDS) == WORDS and set(text.get("tokenizer_kwargs") or {}) <= {"clean"}
    if text.get("hf_model_name") or text.get("hf_tokenizer_name") or not own_words:
        return "its words are read by another tokenizer than open_clip's own"
    if "multimodal_cfg" in config:
        return "it writes captions"
    if not re.fullmatch(r"[\w.]*", str(vision.get("timm_model_name") or "")):
        return f"its images are read by {vision['timm_model_name']}, which is no name of timm"
    return ""


def _build(factory: str, name: str, tag: Mapping[str, Any], device: str = "cpu") -> tuple[Any, Any]:
    """A CLIP model with random weights, and how it sees an image."""
    open_clip = require_open_clip()
    from open_clip.transform import PreprocessCfg, image_transform_v2

    if why := _unusable(open_clip.get_model_config(factory)):
        raise NewkindsError(f"the CLIP model {name} cannot be used here: {why}. Take another one, such as {DEFAULT}.")
    by_tag = {"force_quick_gelu": bool(tag.get("quick_gelu")), "force_preprocess_cfg": dict(tag)}
    try:
        with silence():  # it says that there are no weights yet
            network = open_clip.create_model(factory, load_weights=False, device=device, **by_tag)
        view = image_transform_v2(PreprocessCfg(**network.visual.preprocess_cfg), is_train=False)
    except Exception as error:  # a description from elsewhere can make the builder fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise NewkindsError(f"open_clip cannot build the CLIP model {name} as it is described ({reason}).") from None
    return network, view


def _shapes(factory: str, name: str) -> nn.Module:
    """The CLIP model without values, for its size and its shapes."""
    with torch.device("meta"):
        network, _ = _build(factory, name, {}, device="meta")
    return network


def _state(tensors: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a file under the names of the network: files of either layout of the text tower are read."""
    from open_clip.model import CustomTextCLIP, convert_to_custom_text_state_dict

    wanted = network.state_dict()
    state = without_prefix(tensors, wanted)
    if isinstance(network, CustomTextCLIP):
        state = convert_to_custom_text_state_dict(state)
    scale = state.get("logit_scale")
    if scale is not None and scale.numel() == 1:
        state["logit_scale"] = scale.reshape(wanted["logit_scale"].shape)
    return state


def _batches(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]


def _unit(rows: Tensor, clip: Clip) -> NDArray[np.float32]:
    """(n, D) → unit rows; weights that overflow are an error, not a name."""
    rows = nn.functional.normalize(rows.float(), dim=1)
    if not bool(rows.isfinite().all()):
        raise NewkindsError(f"{clip.name} gives values that are not numbers: are {clip.weights} its own weights?")
    return rows.cpu().numpy()
