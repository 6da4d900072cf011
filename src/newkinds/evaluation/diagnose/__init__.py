"""What happens inside a run: how many directions its features use, and what its organizer adds.

>>> newkinds.diagnose.von_neumann_entropy(features)      # an array or a tensor (n, D)
>>> print(newkinds.diagnose_runs("runs/cpf", against="runs/host").text)
"""

from .result import Diagnosis
from .runs import Diagnosed, diagnose_runs
from .spectra import effective_rank, rank_at, spectrum, von_neumann_entropy

__all__ = [
    "Diagnosed", "Diagnosis", "diagnose_runs", "effective_rank", "rank_at", "spectrum", "von_neumann_entropy",
]  # fmt: skip
