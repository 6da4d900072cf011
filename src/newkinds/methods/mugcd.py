"""μGCD: prototypes that learn from strong views what an average of themselves says of weak ones.
Vaze, Vedaldi, Zisserman: No Representation Rules Them All in Category Discovery. NeurIPS 2023.

A re-implementation: there is no public code. The schedule of the average is that of other people's code, the losses'
constants are SimGCD's, and the strong views are our choice (see docs/methods.md).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from ..assigners.prototypes import PrototypeClassifier
from ..data.views import ViewPlan
from ..encoders.tokens import Encoded
from ..precision import full_precision
from ..settings import Share
from . import losses
from .base import METHODS, Progress, Step
from .schedules import cosine
from .simgcd import PrototypeMethod


@METHODS.register("mugcd")
class MuGCD(PrototypeMethod):
    """Prototypes taught by an average of the whole model, μGCD re-implemented (Vaze et al., NeurIPS 2023).

    Starts from a run of GCD, with new prototypes. The student sees a strong view of each image, the teacher, an average
    of encoder and prototypes over the steps, a weak one: the student must predict what the teacher does, and the class
    of labelled images, while its mean prediction is kept spread over all categories. Nothing is contrasted.
    The category of an image is its nearest prototype; `--assigner sskmeans` clusters the trained features instead,
    which others report as the authors' way.
    """

    @dataclass
    class Config(PrototypeMethod.Config):
        # Of the average after a step. It rises by half a cosine from momentum - (1 - base_momentum): .699 to .999.
        base_momentum: Share = 0.7
        momentum: Share = 0.999
        strong_colour: bool = True  # False: strong views keep their colours, for data where colour tells the class
        assign_by: Literal["teacher", "student"] = "teacher"  # whose weights the trained model has

    config: Config
    starts_from: ClassVar[str | None] = "gcd"

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.classifier = PrototypeClassifier(dim, known, categories, config.student_temp)
        self.classifier.note = f"prototypes of the {config.assign_by}"
        self.views = ViewPlan(("strong" if config.strong_colour else "strong, same colours",), ("weak",))
        self.teacher_answers = config.assign_by == "teacher"

    def teacher_momentum(self, progress: Progress) -> float:
        config = self.config
        first = max(config.momentum - (1 - config.base_momentum), 0.0)  # below zero it would not be an average
        return cosine(progress.epoch + progress.step / progress.steps, progress.epochs, first, config.momentum)

    def teach(self, encoded: Encoded) -> Tensor:
        return self.classifier(encoded.feature)  # (B, K)

    def loss(self, step: Step) -> dict[str, Tensor]:
        logits = self.classifier(step.encoded.feature)  # (B, K)
        return self.loss_of(logits, step.taught, step.batch.labels, step.progress)

    def loss_of(self, logits: Tensor, taught: Tensor, labels: Tensor, progress: Progress) -> dict[str, Tensor]:
        """The loss and its terms from the student's and the teacher's cosines (B, K) and labels (B,; -1: none)."""
        config = self.config
        with full_precision(taught) as taught:
            targets = (taught / self.teacher_temp(progress)).softmax(dim=1)  # (B, K)
        terms = {
            "labelled_cross_entropy": losses.labelled_cross_entropy(logits, labels, config.student_temp),
            "distillation": losses.soft_cross_entropy(logits, targets, config.student_temp),  # of every image
            "mean_entropy_gap": losses.mean_entropy_gap(logits, config.student_temp),
        }
        share = config.sup_weight
        predicted = share * terms["labelled_cross_entropy"] + (1 - share) * terms["distillation"]
        return {"loss": predicted + config.memax_weight * terms["mean_entropy_gap"], **terms}
