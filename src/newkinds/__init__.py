"""Generalized category discovery: recognise the known kinds in images, and discover, count and look at the new ones."""

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from importlib.abc import Loader

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

else:
    Loader = object  # importlib.abc is slow to import, and a name is all that is needed of it

# Found on first use, so that `newkinds --help` does not wait for torch.
_HOME = {
    "CPF": "encoders.organizers.cpf", "CategoryDiscovery": "verbs.estimator",
    "Discovery": "discovery.categories", "Encoded": "encoders.tokens",
    "Encoder": "encoders.encoder", "NewkindsError": "errors", "Tokens": "encoders.tokens",
    "assign": "verbs.assign", "check": "verbs.check", "count_categories": "verbs.count",
    "diagnose_runs": "evaluation.diagnose", "discover": "verbs.discover", "evaluate": "evaluation.judge",
    "export": "verbs.export",
    "figures": "verbs.figures", "load": "discovery.finished", "predict": "verbs.predict", "train": "verbs.train",
    "next_questions": "discovery.questions", "refine": "verbs.refine", "report": "verbs.report",
    "suggest_names": "discovery.suggest", "tune": "verbs.tune", "undo_update": "verbs.undo_update",
    "update": "verbs.update",
}  # fmt: skip

# Modules that people import by a short name, and the rooms they live in.
_ALIASES = {
    "count": "cluster.count", "diagnose": "evaluation.diagnose", "heads": "methods.heads", "losses": "methods.losses",
    "metrics": "cluster.metrics", "organizers": "encoders.organizers",
}  # fmt: skip

_ROOMS = ("checks", "cluster", "data", "methods", "plugins")

__all__ = ["__version__", *sorted([*_HOME, *_ALIASES, *_ROOMS])]


class _Aliases(Loader):
    """Makes `import newkinds.losses` and `from newkinds.losses import …` find the module in its room."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, inner = name.partition(".")
        if package != __name__ or inner.partition(".")[0] not in _ALIASES:
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        alias, dot, rest = spec.name.partition(".")[2].partition(".")
        module = importlib.import_module(f"{__name__}.{_ALIASES[alias]}{dot}{rest}")
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own_spec  # the module was executed under its own name, and keeps it


sys.meta_path.append(_Aliases())


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _ALIASES or name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'newkinds' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
