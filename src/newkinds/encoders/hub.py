"""Published weights: from the cache of the Hugging Face hub, without any connection; else downloaded into it, which
needs the user's word. Nothing else in newkinds connects to a network."""

import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch import nn

from ..console import ask, can_ask
from ..errors import NewkindsError
from ..process import DOWNLOAD, may_download

HUB_FILE = "model.safetensors"
CONNECT_SECONDS = 5
THE_WORD = f"add --download, or set {DOWNLOAD}=1"


class NoWord(NewkindsError):
    """Weights are missing, and nobody said that they may be downloaded; `what` they are, and how large."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


def pretrained_file(
    name: str, hub_id: str | None, url: str | None = None, files: Sequence[str] = (HUB_FILE,), *,
    otherwise: str = "or take --backbone tiny, which is bundled and knows drawn creatures only",
    size: Callable[[], str] = str, allowed: bool = False,
) -> Path:  # fmt: skip
    """The published weights of a model, the first of `files` that there is: from the cache of the hub, else downloaded.

    They are downloaded if the user said so before (`allowed`, --download, NEWKINDS_DOWNLOAD=1) or says so now, on a
    terminal; else an error says what is missing and how to get it. `size`: in words, for the question and the error.
    """
    import huggingface_hub as hub  # slow to import, and needed only here

    if not hub_id and not url:
        raise NewkindsError(
            f"there are no pretrained weights for '{name}': pass your own with --weights FILE, {otherwise}."
        )
    address = f"https://huggingface.co/{hub_id}/resolve/main/{files[0]}" if hub_id else url
    by_hand = f"download {address} on another machine, copy it here and pass it with --weights FILE, {otherwise}."
    if not hub_id:
        raise NewkindsError(f"the weights of '{name}' are not on the model hub: {by_hand}")
    if (cached := cached_file(hub_id, files)) is not None:
        return cached
    offline = hub.constants.HF_HUB_OFFLINE
    word = allowed or may_download()
    if word is None and not offline and can_ask():
        word = _answer(f"Download {_describe(name, size)} from https://huggingface.co/{hub_id}, once?")
    if not word:
        what = _describe(name, size)
        raise NoWord(
            f"the weights of {what} are not on this machine, and nothing is downloaded without your word: {THE_WORD}; "
            f"or pass a copy of {address} with --weights FILE, {otherwise}.", what,
        )  # fmt: skip
    try:
        if not offline:
            _connect(hub.constants.ENDPOINT)
        for file in files[:-1]:
            with suppress(hub.utils.EntryNotFoundError):
                return Path(hub.hf_hub_download(hub_id, file))
        return Path(hub.hf_hub_download(hub_id, files[-1]))
    except Exception as error:  # the hub, its HTTP library and the disk each raise their own kinds
        reason = str(getattr(error, "reason", error)).strip().split("\n")[0].rstrip(".")
        raise NewkindsError(
            f"the weights of '{name}' are not on this machine and cannot be downloaded ({reason}): {by_hand}"
        ) from error


def cached_file(hub_id: str | None, files: Sequence[str] = (HUB_FILE,)) -> Path | None:
    """The weights of a model in the cache of the hub, the first of `files` that is there."""
    import huggingface_hub as hub

    cached = [hub.try_to_load_from_cache(hub_id, file) for file in files] if hub_id else []
    return next((Path(file) for file in cached if isinstance(file, str)), None)


def size_of(build: Callable[[], nn.Module]) -> str:
    """How large the weight file of a network is about: 32 bits each.

    >>> size_of(lambda: timm.create_model("vit_small_patch14_dinov2"))
    '88 MB'
    """
    with torch.device("meta"):  # shapes only
        megabytes = 4 * sum(value.numel() for value in build().state_dict().values()) / 1e6
    return f"{megabytes:.0f} MB" if megabytes < 950 else f"{megabytes / 1000:.1f} GB"


def _describe(name: str, size: Callable[[], str]) -> str:
    return f"{name} (about {said})" if (said := size()) else name


_answer = cache(ask)  # one answer holds for the whole command


def _connect(address: str) -> None:
    """Raise at once if the hub cannot be reached; its own library would retry for most of a minute."""
    request = urllib.request.Request(address, method="HEAD")
    with suppress(urllib.error.HTTPError):  # an answer, even a refusal, shows that there is a connection
        urllib.request.urlopen(request, timeout=CONNECT_SECONDS).close()
