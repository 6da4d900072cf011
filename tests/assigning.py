"""A method's own assigner, as a model uses it."""

from torch import Tensor

from newkinds.assigners import Assignment
from newkinds.methods import Method


def fit(method: Method, features: Tensor, labels: Tensor) -> None:
    method.assigner().fit(method.embedding(features).detach(), labels)


def assign(method: Method, features: Tensor) -> Assignment:
    assigner = method.assigner()
    return Assignment.of_logits(assigner(method.embedding(features)).detach(), assigner.temperature)
