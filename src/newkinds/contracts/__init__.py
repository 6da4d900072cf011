"""What each kind of part promises: `newkinds plugin check` asks it of yours, and our tests of ours."""

from . import described  # noqa: F401  (each of these adds its contracts; this one those that are asked first)

# isort: split
from . import (  # noqa: F401
    assigners,
    checks,
    counters,
    datasets,
    exports,
    methods,
    organizers,
    tunings,
    watchers,
)

# isort: split
from . import hosted  # noqa: F401
from .base import CONTRACTS, AskedPart, Broken, Contract, ContractResult, ask_all
from .plugin import answers_text, check_plugin

__all__ = ["CONTRACTS", "AskedPart", "Broken", "Contract", "ContractResult", "answers_text", "ask_all", "check_plugin"]
