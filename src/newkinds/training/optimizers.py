"""What trains, how fast, and by which optimizer."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from ..errors import NewkindsError
from ..runs.config import TrainConfig
from .model import Model

ADAMW_DECAY = 0.05  # usual with AdamW, whose decay does not depend on the gradient's size


def parameter_groups(model: Model, config: TrainConfig) -> list[dict[str, Any]]:
    """Trainable parameters of each part of the model, with their decay and their share of the learning rate.

    Biases and other one-dimensional parameters are not decayed unless the method's authors do.
    """
    organizer = list(model.encoder.organizer.parameters())
    if config.freeze_organizer:
        model.encoder.organizer.requires_grad_(False)
    elif organizer and not any(parameter.requires_grad for parameter in organizer):
        raise NewkindsError(
            "the organizer has parameters but none of them is trainable, so it would stay at its random start: "
            "call requires_grad_() on it, or set train.freeze_organizer=true if that is what you want to measure."
        )
    groups: dict[tuple[str, bool], list[nn.Parameter]] = defaultdict(list)
    for part, module in model.components().items():
        for parameter in module.parameters():
            if parameter.requires_grad:
                # an organizer's scalars are gates, never decayed, whatever the host does with its biases
                decayed = parameter.ndim > 1 or (config.decay_biases and part != "organizer")
                groups[part, decayed].append(parameter)
    ratios = {
        "backbone": config.backbone_lr_ratio, "tuning": config.tuning_lr_ratio, "organizer": config.organizer_lr_ratio,
        "head": 1.0,
    }  # fmt: skip
    return [
        {
            "name": part if decayed else f"{part} (biases and other vectors)",
            "params": parameters,
            "weight_decay": _decay(part, config) if decayed else 0.0,
            "lr_ratio": ratios[part],
        }
        for (part, decayed), parameters in groups.items()
    ]


def _decay(part: str, config: TrainConfig) -> float:
    if part == "tuning" and config.tuning_decay is not None:
        return config.tuning_decay
    if part != "organizer":
        return config.weight_decay
    usual = ADAMW_DECAY if config.organizer_optimizer == "adamw" else config.weight_decay
    return usual if config.organizer_decay is None else config.organizer_decay


def describe_groups(groups: Sequence[Mapping[str, Any]], lr: float) -> list[str]:
    """One line per group of parameters: what trains, how fast, with which decay."""
    return [
        f"{group['name']}: {sum(parameter.numel() for parameter in group['params']):,} parameters, "
        f"lr {lr * group['lr_ratio']:g}, decay {group['weight_decay']:g}"
        for group in groups
    ]


@dataclass(frozen=True)
class Optimizers:
    """SGD of everything, or of everything but the organizer, which then has its own."""

    parts: list[Optimizer]
    clip: float = 0.0  # of the organizer's gradient

    def set_lr(self, lr: float, organizer: float = 1.0) -> None:
        """Learning rates of all groups from the head's; `organizer`: the organizer's share while it warms up."""
        for part in self.parts:
            for group in part.param_groups:
                share = organizer if group["name"].startswith("organizer") else 1.0
                group["lr"] = lr * group["lr_ratio"] * share

    def state_dict(self) -> dict[str, Any]:
        first, *rest = (part.state_dict() for part in self.parts)
        return {**first, "organizer": rest[0]} if rest else first

    def load_state_dict(self, state: dict[str, Any]) -> None:
        rest = state.pop("organizer", None)
        for part, part_state in zip(self.parts, [state, *([rest] if rest else [])], strict=True):
            part.load_state_dict(part_state)


def has_gradients(optimizer: Optimizer) -> bool:
    return any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])


def build_optimizer(groups: Sequence[Mapping[str, Any]], config: TrainConfig) -> Optimizers:
    """For the groups of `parameter_groups`."""
    own = [dict(group) for group in groups if group["name"].startswith("organizer")]
    if config.organizer_optimizer == "sgd" or not own:
        every = [dict(group) for group in groups]
        return Optimizers([SGD(every, lr=config.lr, momentum=config.momentum)], config.organizer_clip)
    others = [dict(group) for group in groups if not group["name"].startswith("organizer")]
    rest = SGD(others, lr=config.lr, momentum=config.momentum)
    return Optimizers([rest, AdamW(own, lr=config.lr)], config.organizer_clip)
