"""CPF in the order the paper writes it: the oracle of the tests, and what the benchmarks compare the fast path with."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.encoders.organizers.cpf import CPF, Field, PrimitiveField
from newkinds.encoders.organizers.cpf_parts import CPFParts
from newkinds.encoders.organizers.query_attention import QueryAttention


class PlainCPF(CPF):
    """The same parameters as `CPF`, the same results, every product as it stands in the equations."""

    def forward(self, cls: Tensor, patches: Tensor, return_field: bool = False) -> Tensor | Field:
        assignment, p2, *others = plain_field(self, patches)
        mixture = assignment @ F.gelu(self.mlp1(p2))  # (B, N, D)
        refined = patches + F.gelu(self.mlp2(mixture))  # (B, N, D)
        if self.readout == "delta":
            feature = cls + (refined - patches).mean(dim=1)
        elif self.readout == "gated":
            feature = cls + self.gate * refined.mean(dim=1)
        else:
            feature = cls + refined.mean(dim=1)
        return Field(feature, refined, assignment, p2, *others) if return_field else feature


class PlainCPFParts(CPFParts):
    """The same of `CPFParts`, primitive by primitive."""

    def forward(self, cls: Tensor, patches: Tensor, return_field: bool = False) -> Tensor | Field:
        x = plain_norm(patches) if self.normalise else patches
        assignment, p2, *others = plain_field(self, x)
        refined = patches
        feature = self.adapter(cls)
        for m in range(p2.shape[1]):
            decoded = plain_norm(p2[:, m]) @ self.maps.down[m] @ self.maps.up[m]  # (B, D)
            refined = refined + assignment[:, :, m, None] * decoded[:, None]
            feature = feature + decoded
        return Field(feature, refined, assignment, p2, *others) if return_field else feature


def plain_field(cpf: PrimitiveField, x: Tensor) -> tuple[Tensor, ...]:
    """A, P2, P, A_prior, A_data, P0 and P1 of tokens (B, N, D)."""
    batch, _, dim = x.shape
    mean_max = torch.cat([x.mean(dim=1), x.max(dim=1).values], dim=1)  # (B, 2D)
    codebook = cpf.base + cpf.phi(mean_max).reshape(batch, -1, dim)  # (B, M, D)
    scores = (cpf.w(x) @ codebook.transpose(1, 2)) / math.sqrt(dim)  # (B, N, M)
    prior = torch.softmax(scores, dim=1)  # (B, N, M)
    p0 = prior.transpose(1, 2) @ x  # (B, M, D)
    message, weights = attend(cpf.update, p0, x)  # (B, M, D), (B, H, M, N)
    p1 = p0 + cpf.gamma * message  # (B, M, D)
    p2, _ = attend(cpf.consolidation, p1, p1)  # (B, M, D)
    data = torch.softmax(weights.mean(dim=1).transpose(1, 2) / cpf.data_temperature, dim=2)  # (B, N, M)
    z = cpf.alpha_prior * prior.log() + cpf.alpha_data * data.log()  # (B, N, M)
    return torch.softmax(z, dim=2), p2, codebook, prior, data, p0, p1


def plain_norm(rows: Tensor) -> Tensor:
    """LayerNorm without parameters, over the last axis."""
    centred = rows - rows.mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-5)


def attend(attention: QueryAttention, queries: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Multi-head attention with all tokens projected: messages (B, M, D) and weights (B, H, M, N)."""
    q, k, v = (
        linear(source).unflatten(2, (attention.heads, -1)).transpose(1, 2)  # (B, H, M or N, d)
        for linear, source in ((attention.q, queries), (attention.k, tokens), (attention.v, tokens))
    )
    weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]), dim=3)  # (B, H, M, N)
    return attention.o((weights @ v).transpose(1, 2).flatten(2)), weights
