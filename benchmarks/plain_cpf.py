"""CPF in the order the paper writes it: the oracle of the tests, and what the benchmarks compare the fast path with."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.encoders.organizers.cpf import CPF, Attention, Field


class PlainCPF(CPF):
    """The same parameters as `CPF`, the same results, every product as it stands in the equations."""

    def forward(self, cls: Tensor, patches: Tensor, return_field: bool = False) -> Tensor | Field:
        x = patches  # (B, N, D)
        if self.normalise:
            centred = patches - patches.mean(dim=2, keepdim=True)
            x = centred / torch.sqrt(centred.square().mean(dim=2, keepdim=True) + 1e-5)
        batch, _, dim = x.shape

        mean_max = torch.cat([x.mean(dim=1), x.max(dim=1).values], dim=1)  # (B, 2D)
        codebook = self.base + self.phi(mean_max).reshape(batch, -1, dim)  # (B, M, D)
        scores = (self.w(x) @ codebook.transpose(1, 2)) / math.sqrt(dim) / self.prior_temperature  # (B, N, M)
        prior = torch.softmax(scores, dim=1)  # (B, N, M)

        p0 = prior.transpose(1, 2) @ x  # (B, M, D)
        message, weights = attend(self.update, p0, x)  # (B, M, D), (B, H, M, N)
        p1 = p0 + self.gamma * message  # (B, M, D)
        p2, _ = attend(self.consolidation, p1, p1)  # (B, M, D)

        data = torch.softmax(weights.mean(dim=1).transpose(1, 2) / self.data_temperature, dim=2)  # (B, N, M)
        z = self.alpha_prior * prior.log() + self.alpha_data * data.log()  # (B, N, M)
        assignment = torch.softmax(z, dim=2)  # (B, N, M)
        if self.readout == "apart":
            refined, feature = self.decoded_apart(cls, patches, assignment, p2)
        else:
            mixture = assignment @ F.gelu(self.mlp1(p2))  # (B, N, D)
            refined = patches + F.gelu(self.mlp2(mixture))  # (B, N, D)
        if self.readout == "delta":
            feature = cls + (refined - patches).mean(dim=1)
        elif self.readout == "gated":
            feature = cls + self.gate * refined.mean(dim=1)
        elif self.readout == "literal":
            feature = cls + refined.mean(dim=1)
        feature = self.norm(feature)
        return Field(feature, refined, assignment, p2, codebook, prior, data, p0, p1) if return_field else feature

    def decoded_apart(self, cls: Tensor, patches: Tensor, assignment: Tensor, p2: Tensor) -> tuple[Tensor, Tensor]:
        """X_refined and CLS*, primitive by primitive."""
        refined, feature = patches, self.adapter(cls)
        for m in range(p2.shape[1]):
            primitive = p2[:, m]  # (B, D)
            centred = primitive - primitive.mean(dim=1, keepdim=True)
            unit = centred / torch.sqrt(centred.square().mean(dim=1, keepdim=True) + 1e-5)
            decoded = unit @ self.apart.down[m] @ self.apart.up[m]  # (B, D)
            refined = refined + assignment[:, :, m, None] * decoded[:, None]
            feature = feature + decoded
        return refined, feature


def attend(attention: Attention, queries: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Multi-head attention with all tokens projected: messages (B, M, D) and weights (B, H, M, N)."""
    q, k, v = (
        linear(source).unflatten(2, (attention.heads, -1)).transpose(1, 2)  # (B, H, M or N, d)
        for linear, source in ((attention.q, queries), (attention.k, tokens), (attention.v, tokens))
    )
    weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]), dim=3)  # (B, H, M, N)
    return attention.o((weights @ v).transpose(1, 2).flatten(2)), weights
