"""Generalized category discovery: recognise the known kinds in images, and discover, count and look at the new ones."""

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import checks as checks
    from . import cluster as cluster
    from . import count as count
    from . import data as data
    from . import diagnose as diagnose
    from . import heads as heads
    from . import losses as losses
    from . import methods as methods
    from . import metrics as metrics
    from . import organizers as organizers
    from . import plugins as plugins
    from .discovery.categories import Discovery as Discovery
    from .discovery.finished import load as load
    from .discovery.questions import next_questions as next_questions
    from .discovery.suggest import suggest_names as suggest_names
    from .encoders.encoder import Encoder as Encoder
    from .encoders.organizers.cpf import CPF as CPF
    from .encoders.tokens import Encoded as Encoded
    from .encoders.tokens import Tokens as Tokens
    from .errors import NewkindsError as NewkindsError
    from .evaluation.diagnose import diagnose_runs as diagnose_runs
    from .evaluation.judge import evaluate as evaluate
    from .training.watching import Watcher as Watcher
    from .verbs.assign import assign as assign
    from .verbs.check import check as check
    from .verbs.count import count_categories as count_categories
    from .verbs.discover import discover as discover
    from .verbs.estimator import CategoryDiscovery as CategoryDiscovery
    from .verbs.export import export as export
    from .verbs.figures import figures as figures
    from .verbs.predict import predict as predict
    from .verbs.refine import refine as refine
    from .verbs.report import report as report
    from .verbs.train import train as train
    from .verbs.tune import tune as tune
    from .verbs.undo_update import undo_update as undo_update
    from .verbs.update import update as update

# Found on first use, so that `newkinds --help` does not wait for torch.
_HOME = {
    "CPF": "encoders.organizers.cpf", "CategoryDiscovery": "verbs.estimator",
    "Discovery": "discovery.categories", "Encoded": "encoders.tokens",
    "Encoder": "encoders.encoder", "NewkindsError": "errors", "Tokens": "encoders.tokens",
    "Watcher": "training.watching",
    "assign": "verbs.assign", "check": "verbs.check", "count_categories": "verbs.count",
    "diagnose_runs": "evaluation.diagnose", "discover": "verbs.discover", "evaluate": "evaluation.judge",
    "export": "verbs.export",
    "figures": "verbs.figures", "load": "discovery.finished", "predict": "verbs.predict", "train": "verbs.train",
    "next_questions": "discovery.questions", "refine": "verbs.refine", "report": "verbs.report",
    "suggest_names": "discovery.suggest", "tune": "verbs.tune", "undo_update": "verbs.undo_update",
    "update": "verbs.update",
}  # fmt: skip

# Modules that are names of newkinds itself; some are short names of modules in the rooms.
_MODULES = (
    "checks", "cluster", "count", "data", "diagnose", "heads", "losses", "methods", "metrics", "organizers", "plugins",
)  # fmt: skip

__all__ = ["__version__", *sorted([*_HOME, *_MODULES])]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'newkinds' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
