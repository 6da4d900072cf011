"""The baseline that trains nothing: categories in the backbone's features.
Vaze, Han, Vedaldi, Zisserman (Generalized Category Discovery, CVPR 2022) report it too.
"""

from typing import Any, ClassVar

from torch import Tensor

from ..assigners.centres import LabelledKMeans
from ..errors import NewkindsError
from .base import METHODS, Method, Step


@METHODS.register("frozen")
class Frozen(Method):
    """Nothing is trained: an assigner alone finds the categories in the backbone's features.

    The baseline that every trained method should beat: semi-supervised k-means, or what `--assigner` names.
    """

    backbone_defaults: ClassVar[dict[str, Any]] = {"train_blocks": 0}
    trains = False

    def __init__(self, config: Any, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.classifier = LabelledKMeans(dim, known, categories)

    def loss(self, step: Step) -> dict[str, Tensor]:
        raise NewkindsError("the method 'frozen' has no loss: choose another method to train.")
