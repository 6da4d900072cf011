"""The averaged teacher: all that trains, averaged over the steps of training."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..data.batch import Inputs
from ..encoders.encoder import Encoder
from ..methods import Method


class Teacher(nn.Module):
    """A moving average of the trained weights of encoder and method, which says what the student should learn.

    Only what trains is kept twice. It is in buffers, so that it is saved in checkpoints; the finished run has none.
    """

    def __init__(self, encoder: Encoder, method: Method) -> None:
        super().__init__()
        self._student = (_Student(encoder, method),)  # in a tuple: its weights are not the teacher's
        for name, parameter in self._trained().items():
            self.register_buffer(name.replace(".", "/"), parameter.detach().clone())

    def _trained(self) -> dict[str, nn.Parameter]:
        return {name: value for name, value in self._student[0].named_parameters() if value.requires_grad}

    def _averaged(self) -> dict[str, Tensor]:
        return {name.replace("/", "."): value for name, value in self.named_buffers()}

    @torch.no_grad()
    def forward(self, inputs: Inputs) -> Any:
        """What the method teaches about V·B views, with the averaged weights."""
        return functional_call(self._student[0], self._averaged(), (inputs,))

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        """After a step: the average keeps this share of itself."""
        student = dict(self._student[0].named_parameters())
        for name, average in self._averaged().items():
            average.lerp_(student[name], 1 - momentum)

    @torch.no_grad()
    def change_places(self) -> None:
        """The student gets the averaged weights, and the average the student's: a second time, all is as before."""
        student = dict(self._student[0].named_parameters())
        for name, average in self._averaged().items():
            latest = student[name].clone()
            student[name].copy_(average)
            average.copy_(latest)


class _Student(nn.Module):
    """Encoder and method as one function of a batch's views."""

    def __init__(self, encoder: Encoder, method: Method) -> None:
        super().__init__()
        self.encoder, self.method = encoder, method

    def forward(self, inputs: Inputs) -> Any:
        return self.method.teach(self.encoder(inputs, prompts=self.method.reads_prompts))
