"""newkinds: generalized category discovery.

Recognise the known kinds in a set of images, and discover, count and look at the new ones.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .discovery import Discovery as Discovery
    from .encoder import Encoded as Encoded
    from .encoder import Encoder as Encoder
    from .encoder import Tokens as Tokens
    from .errors import NewkindsError as NewkindsError
    from .evaluation import evaluate as evaluate
    from .loaded import load as load
    from .loaded import predict as predict
    from .organizers.cpf import CPF as CPF
    from .pipeline import count_categories as count_categories
    from .pipeline import discover as discover
    from .pipeline import train as train

# Found on first use, so that `newkinds --help` does not wait for torch.
_HOME = {
    "CPF": "organizers.cpf",
    "Discovery": "discovery",
    "Encoded": "encoder",
    "Encoder": "encoder",
    "NewkindsError": "errors",
    "Tokens": "encoder",
    "count_categories": "pipeline",
    "discover": "pipeline",
    "evaluate": "evaluation",
    "load": "loaded",
    "predict": "loaded",
    "train": "pipeline",
}

_ROOMS = ("cluster", "count", "data", "heads", "losses", "methods", "metrics", "organizers")

__all__ = ["__version__", *sorted([*_HOME, *_ROOMS])]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'newkinds' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
