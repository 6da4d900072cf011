"""DCCL: GCD, and contrast with concepts: communities of similar images, found anew before each epoch.
Pu, Zhong, Sebe: Dynamic Conceptional Contrastive Learning for Generalized Category Discovery. CVPR 2023.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..cluster.communities import Partition, communities, neighbour_graph, require_infomap
from ..console import warn
from ..precision import full_precision
from ..settings import AtLeastOne, NonNegative, Positive, Range, Share, WholeNumber
from . import losses
from .base import METHODS, Embed, Extra, Step
from .gcd import GCD
from .schedules import linear_then_constant


@METHODS.register("dccl")
class DCCL(GCD):
    """GCD with concepts: communities of similar images, one memory each (Pu et al., CVPR 2023).

    Before each epoch every training image is linked to its nearest neighbours, and communities are found in this
    graph. The memory of a community starts as the mean feature of its images and follows those of each step. Beside
    GCD's losses, an image must find the memory of its community among all. The number of communities is an estimate of
    the number of categories; it is logged as `communities`. The categories themselves are those of k-means, as in GCD.
    """

    @dataclass
    class Config(GCD.Config):
        neighbours: Annotated[int, Range(2)] = 15  # of an image in the graph, itself included
        min_similarity: Annotated[float, Range(-1, 1)] = 0.6  # of linked images
        partition: Partition = "map_equation"  # "infomap", as published, needs an extra
        smallest_community: AtLeastOne = 5  # images in smaller ones have no concept
        concept_temp: Positive = 0.05
        concept_weight: NonNegative = 0.4
        start_concept_weight: NonNegative = 0.04  # at epoch 0, from where it changes linearly to concept_weight
        concept_warmup_epochs: WholeNumber = 100  # also when fewer are trained: the weight then stays lower
        memory_momentum: Share = 0.1  # what is left of a memory after each image of its community
        # a link counts as one within a class by the label of another image, one of the first with a label; memories
        # start from features as long as they are; and k-means as in KMeansMethod
        as_published: bool = False

    extras = (Extra("partition", "infomap", "infomap", instead="map_equation"),)
    config: Config
    backbone_defaults: ClassVar[dict[str, Any]] = {"train_norm": True}
    community: Tensor
    memory: Tensor

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        # Of the current epoch, found again when training is resumed.
        self.register_buffer("community", torch.empty(0, dtype=torch.long), persistent=False)  # (n,) -1: none
        self.register_buffer("memory", torch.empty(0, dim), persistent=False)  # (C, D) unit rows

    def begin(self, labels: Tensor) -> None:
        super().begin(labels)
        if self.config.partition == "infomap":
            require_infomap()  # before anything is embedded

    def on_epoch_start(self, epoch: int, embed: Embed) -> None:
        features, labels = embed("centre")  # (1, n, D), (n,)
        self.find_concepts(features[0], labels, np.random.RandomState(int(torch.randint(2**31, ()))))
        if epoch == 0 and not len(self.memory):
            config = self.config
            warn(
                f"no {config.smallest_community} images form a community, so the epoch trains GCD alone: lower "
                f"method.min_similarity ({config.min_similarity}) or method.smallest_community."
            )

    @torch.no_grad()
    def find_concepts(self, features: Tensor, labels: Tensor, random: np.random.RandomState) -> None:
        """Communities and their memories, from the features (n, D) and labels (n,; -1: none) of all images."""
        config, unit = self.config, self.embedding(features)
        # the published data set has the labelled images first, each part in its own order
        by_rank = labels[(labels < 0).byte().argsort(stable=True)] if config.as_published else None
        graph = neighbour_graph(unit, labels, config.neighbours, config.min_similarity, by_rank=by_rank)
        found = communities(graph, random, config.partition, config.smallest_community)
        self.community = torch.from_numpy(found).to(features.device)
        self.memory = mean_directions(features if config.as_published else unit, self.community)

    def loss(self, step: Step) -> dict[str, Tensor]:
        config, features = self.config, step.encoded.feature  # (2B, D)
        terms = self.loss_of(self.head(features), step.batch.labels)
        community = self.community[step.batch.index].repeat(2)  # (2B,), both views
        with full_precision(features) as rows:
            unit = F.normalize(rows, dim=1)
        concept = concept_contrast(unit, community, self.memory, config.concept_temp)
        warmup = (config.start_concept_weight, config.concept_weight, config.concept_warmup_epochs)
        loss = terms["loss"] + linear_then_constant(step.progress.epoch, *warmup) * concept
        if self.training:
            self.memory = follow(self.memory, unit.detach(), community, config.memory_momentum)
        count = torch.tensor(float(len(self.memory)), device=features.device)
        return {**terms, "loss": loss, "concept_contrast": concept, "communities": count}


def mean_directions(rows: Tensor, community: Tensor) -> Tensor:
    """The normalised mean (C, D) of the rows (n, D) of each community (n,; -1: none)."""
    kept = community >= 0
    sums = rows.new_zeros(int(community.max()) + 1, rows.shape[1])
    return F.normalize(sums.index_add(0, community[kept], rows[kept]), dim=1)


def concept_contrast(unit: Tensor, community: Tensor, memory: Tensor, temperature: float) -> Tensor:
    """Find the memory (C, D) of one's community (m,; -1: none) by cosine with unit rows (m, D); 0 if there is none."""
    if not len(memory):
        return unit.sum() * 0.0
    with full_precision(unit) as unit:
        return losses.labelled_cross_entropy(unit @ memory.to(unit.dtype).T, community, temperature)


@torch.no_grad()
def follow(memory: Tensor, unit: Tensor, community: Tensor, momentum: float) -> Tensor:
    """The memory (C, D) after unit rows (m, D) went into those of their communities (m,; -1: none), one by one."""
    unit, community = unit[community >= 0], community[community >= 0]
    counts = community.bincount(minlength=len(memory))  # (C,)
    order = community.argsort(stable=True)
    first = (counts.cumsum(0) - counts)[community[order]]
    turn = torch.arange(len(order), device=order.device) - first  # rows before it in the same community
    memory = memory.to(unit.dtype, copy=True)
    for now in range(int(counts.max()) if len(counts) else 0):  # communities do not wait for each other
        some = order[turn == now]
        mixed = momentum * memory[community[some]] + (1 - momentum) * unit[some]
        memory[community[some]] = F.normalize(mixed, dim=1)
    return memory
