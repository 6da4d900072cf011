"""SPTNet: SimGCD whose images get learnable pixels, in turn with the rest.
Wang, Vaze, Han: SPTNet: An Efficient Alternative Framework for Generalized Category Discovery with Spatial Prompt
Tuning. ICLR 2024.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..settings import WholeNumber
from .base import METHODS
from .simgcd import SimGCD


@METHODS.register("sptnet")
class SPTNet(SimGCD):
    """SimGCD in turns with prompts in pixel space (Wang et al., ICLR 2024).

    Starts from a run of SimGCD. For 20 steps only the prompts learn, from two crops of each image that both have them;
    for the next 20 all else, from one crop without and with them: see the tuning `pixels`. The loss is always SimGCD's.
    The learning rate of the prompts is train.tuning_lr_ratio times that of the head: the authors take 25 and .05 on
    CUB, 10 and .05 on Cars, 1 and .05 on Aircraft, .5 and .01 on Herbarium 19, 1 and .003 on CIFAR-10, 5 and .003 on
    CIFAR-100 and ImageNet-100. On CIFAR they have prompts inside patches alone (tuning.where=patches); they take
    memax_weight 2 on CUB, 1 elsewhere.
    """

    @dataclass
    class Config(SimGCD.Config):
        warmup_teacher_epochs: WholeNumber = 10

    starts_from: ClassVar[str | None] = "simgcd"
    tuning_defaults: ClassVar[dict[str, Any]] = {"name": "pixels"}
    # The prompts' rate is the head's: 200 times as much, the authors' choice on Cars after a warm-up that we do not
    # have, put all images into one category, on birds and on creatures. The recipes have the authors' rates.
    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 1000, "lr": 0.05, "min_lr_ratio": 0.1, "weight_decay": 5e-4, "tuning_decay": 0.0,
    }  # fmt: skip
