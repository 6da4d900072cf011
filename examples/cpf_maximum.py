"""An organizer for newkinds: CPF, read by the maximum of its refined patches instead of their mean.

newkinds plugin check examples/cpf_maximum.py
newkinds train creatures --out runs/maximum --organizer cpf-maximum --plugin examples/cpf_maximum.py
"""

from torch import nn

from newkinds import Encoded, Tokens
from newkinds.organizers import ORGANIZERS
from newkinds.organizers.cpf import CPF, Field
from newkinds.settings import AtLeastOne


@ORGANIZERS.register("cpf-maximum")
class CPFMaximum(CPF):
    """CLS plus a learned map of the largest value that any refined patch has in each direction."""

    def __init__(self, dim: int, primitives: AtLeastOne = 12, heads: AtLeastOne = 12) -> None:
        super().__init__(dim, primitives, heads)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, dim, bias=False)
        nn.init.zeros_(self.out.weight)  # at the start the feature is the class token

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        field = self(tokens.cls, tokens.patches, return_field=True)
        assert isinstance(field, Field)
        largest = field.tokens.amax(dim=1)  # (B, D) over N patches
        feature = tokens.cls + self.out(self.norm(largest))
        if not details:
            return Encoded(feature)
        return Encoded(feature, tokens=field.tokens, field=field.assignment, grid=tokens.grid)
