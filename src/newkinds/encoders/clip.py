"""CLIP models, which put images and words into one space. The package open_clip is an extra; nothing is downloaded
unasked, and a weight file is read as tensors alone."""

import json
import os
import re
from collections.abc import Sequence
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


class Found(NamedTuple):
    """A CLIP model before it is built."""

    name: str
    config: dict[str, Any]
    preprocess: dict[str, Any]
    weights: Path


class Clip:
    """A CLIP model of open_clip.

    >>> clip = load_clip("ViT-B-32:laion2b_s34b_b79k")
    >>> clip.image_rows([image]) @ clip.text_rows(["a photo of a corgi."]).T
    """

    def __init__(self, found: Found, device: torch.device) -> None:
        open_clip = require_open_clip()
        from open_clip.transform import PreprocessCfg, image_transform_v2

        network = _network(found.config, found.name)
        state = _state(read_tensors(found.weights), network)
        advice = "Name the architecture they are of (--clip), or pass other weights."
        fill(network, state, found.weights, f"the CLIP model {found.name}", UNNEEDED, advice)
        self.name, self.weights, self.device = found.name, found.weights, device
        self.network = network.to(device).eval()
        self._is_causal = (
            type(network) is open_clip.CLIP and network.attn_mask is not None and network.text_pool_type == "argmax"
        )
        text = found.config["text_cfg"]
        clean = text.get("tokenizer_kwargs") or {}
        self._tokens = open_clip.SimpleTokenizer(context_length=text.get("context_length", 77), **clean)
        size = self.network.visual.image_size
        known = {name: found.preprocess[name] for name in ("mean", "std", "interpolation", "resize_mode", "fill_color")
                 if found.preprocess.get(name) is not None}  # fmt: skip
        self._view = image_transform_v2(PreprocessCfg(size=size, **known), is_train=False)

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


def _find(clip: str | Path | None, weights: str | Path | None, download: bool) -> Found:
    """The model that is meant; an error says what is needed."""
    open_clip = require_open_clip()
    file = None if weights is None else user_path(weights)
    if clip is None and (clip := file or _on_this_machine(open_clip)) is None:
        try:
            return _published(open_clip, DEFAULT, None, download)
        except NoWord as error:
            raise NewkindsError(_nothing_here(error.what)) from None
    text = str(clip)
    if text.partition(":")[0] in open_clip.list_models():  # even if a file is called so: write ./NAME for that
        return _published(open_clip, text, file, download)
    if text.startswith(HUB):
        hub_id = text.removeprefix(HUB)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub_id) or ".." in hub_id:
            raise NewkindsError(f"'{text}' is no model of the hub: write {HUB}OWNER/MODEL.")
        config = _read_config(_hub_file(text, hub_id, (CONFIG,), download))
        return Found(text, *config, file or _hub_file(text, hub_id, WEIGHTS, download, config[0]))
    path = user_path(text)
    if path.is_dir():
        own = [path / name for name in WEIGHTS if (path / name).is_file()]
        if file is None and not own:
            raise NewkindsError(f"{path} holds no weights ({' or '.join(WEIGHTS)}): name them by --weights FILE.")
        return Found(path.name, *_read_config(path / CONFIG), file or own[0])
    if path.is_file():
        beside = path.with_name(CONFIG)
        return Found(path.name, *_read_config(beside), path) if beside.is_file() else _told_by_shapes(open_clip, path)
    raise NewkindsError(
        f"there is no CLIP model '{text}', and no such file or folder.{nearest(text, _all_published(open_clip))} "
        f"Name one that open_clip knows, such as {DEFAULT}, or a file: {BY_FILE}."
    )


def _published(open_clip: ModuleType, text: str, file: Path | None, download: bool) -> Found:
    """NAME or NAME:TAG. The tag says how images are prepared and which activation the model has, even with a file."""
    name, _, tag = text.partition(":")
    config, tags = open_clip.get_model_config(name), open_clip.list_pretrained_tags_by_model(name)
    published = open_clip.get_pretrained_cfg(name, tag) if tag else {}
    shown = ", ".join(f"{name}:{one}" for one in tags) or "none"
    if tag and not published:
        raise NewkindsError(f"there are no published weights '{text}'.{nearest(tag, tags)} Published are: {shown}.")
    if published.get("quick_gelu"):
        config["quick_gelu"] = True
    if file is not None:
        return Found(text, config, published, file)
    if not tag:
        raise NewkindsError(
            f"{name} is an architecture: name its weights by --weights FILE, or published ones by NAME:TAG ({shown})."
        )
    hub_id, weights = os.path.split(published["hf_hub"])
    files = (str(Path(weights).with_suffix(".safetensors")), weights) if weights else WEIGHTS
    return Found(text, config, published, _hub_file(text, hub_id, files, download, config))


def _hub_file(
    name: str, hub_id: str, files: Sequence[str], download: bool, config: dict[str, Any] | None = None
) -> Path:
    """A file from the cache of the hub; if it is not there, it is downloaded only with the user's word."""
    size = str if config is None else partial(size_of, partial(_network, config, name))
    otherwise = "or name the folder of a copy by --clip FOLDER"
    return pretrained_file(name, hub_id, files=files, otherwise=otherwise, size=size, allowed=download)


def _nothing_here(what: str) -> str:
    return (
        "naming by words needs a CLIP model, and there is none on this machine. What you can do:\n"
        f"  with a network:      {THE_WORD}: {what} is downloaded once\n"
        f"  with a weight file:  add {BY_FILE}\n"
        f"  with a copied model: add --clip FOLDER, which holds {CONFIG} and {WEIGHTS[0]}"
    )


def _all_published(open_clip: ModuleType) -> list[str]:
    return [f"{name}:{tag}" for name, tag in open_clip.list_pretrained()]


def _on_this_machine(open_clip: ModuleType) -> str | None:
    """Published weights that the cache of the hub holds and that can be used here; the default ones come first."""
    for name in (DEFAULT, *_all_published(open_clip)):
        architecture, tag = name.split(":")
        hub_id, weights = os.path.split(open_clip.get_pretrained_cfg(architecture, tag).get("hf_hub", ""))
        usable = hub_id and not weights and not _unusable(open_clip.get_model_config(architecture))
        if usable and cached_file(hub_id, WEIGHTS) is not None:
            return name
    return None


def _read_config(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Architecture and preparation of images, as a model of the hub describes them."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        config, preprocess = content["model_cfg"], content.get("preprocess_cfg") or {}
        if not all(isinstance(part, dict) for part in (preprocess, config, config["vision_cfg"], config["text_cfg"])):
            raise TypeError("it is not an object of objects")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NewkindsError(
            f"{file} does not describe a CLIP model ({reason}): copy it again from the hub, or name the architecture "
            f"and the weights: {BY_FILE}."
        ) from None
    return config, preprocess


def _told_by_shapes(open_clip: ModuleType, file: Path) -> Found:
    """The architecture of a weight file, if its tensors fit one alone: activations do not show in shapes."""
    tensors = read_tensors(file)
    fits = []
    for name in open_clip.list_models():
        config = open_clip.get_model_config(name)
        # a network is built only if the file may be of it
        if _unusable(config) or not any(value.shape[-1:] == (config["embed_dim"],) for value in tensors.values()):
            continue
        with torch.device("meta"):  # shapes only
            wanted = {key: value.shape for key, value in _network(config, name).state_dict().items()}
        state = without_prefix(tensors, wanted)
        if {key: value.shape for key, value in state.items() if not UNNEEDED.match(key)} == wanted:
            fits.append(name)
    if len(fits) == 1:
        return Found(fits[0], open_clip.get_model_config(fits[0]), {}, file)
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


def _network(config: dict[str, Any], name: str) -> Any:
    """A CLIP model with random weights."""
    from open_clip.model import CLIP, CustomTextCLIP

    if why := _unusable(config):
        raise NewkindsError(f"the CLIP model {name} cannot be used here: {why}. Take another one, such as {DEFAULT}.")
    vision = {**config["vision_cfg"], "timm_model_pretrained": False}  # else it would be downloaded
    layout = {key: value for key, value in config.items() if key != "custom_text"}
    try:
        kind = CustomTextCLIP if config.get("custom_text") else CLIP
        return kind(**{**layout, "vision_cfg": vision, "text_cfg": dict(config["text_cfg"])})
    except Exception as error:  # a description from elsewhere can make the builder fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise NewkindsError(f"open_clip cannot build the CLIP model {name} as it is described ({reason}).") from None


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
