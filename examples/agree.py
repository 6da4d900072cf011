"""A method for newkinds: the two views of an image agree on a category, and all categories are used."""

from dataclasses import dataclass

from torch import Tensor

from newkinds import losses
from newkinds.assigners.prototypes import PrototypeClassifier
from newkinds.methods import METHODS, Method, Step
from newkinds.settings import NonNegative, Positive


@METHODS.register("agree")
class Agree(Method):
    """Two views of an image agree on a category, labelled ones on theirs, and all categories are used."""

    @dataclass
    class Config(Method.Config):
        temperature: Positive = 0.1
        spread: NonNegative = 2.0  # weight of the term that keeps all categories in use

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.classifier = PrototypeClassifier(dim, known, categories, config.temperature)

    def loss(self, step: Step) -> dict[str, Tensor]:
        logits = self.classifier(step.encoded.feature)  # (2B, K) cosines: first views of B images, then second ones
        first, second = (logits / self.config.temperature).softmax(dim=1).chunk(2)  # (B, K) each
        terms = {
            "labels": losses.labelled_cross_entropy(logits, step.batch.labels.repeat(2), self.config.temperature),
            "agreement": -(first * second).sum(dim=1).clamp_min(1e-8).log().mean(),
            "spread": self.config.spread * losses.mean_entropy_gap(logits, self.config.temperature),
        }
        return {"loss": terms["labels"] + terms["agreement"] + terms["spread"], **terms}
