"""Attention with a key-value cache, for text decoders: written in plain PyTorch, so that every target can take it.

Shapes: B batch (1 with a cache), H heads, N new tokens, S positions of the cache, D width of a head.
"""

from __future__ import annotations

import torch
from torch import nn


class KeyValueCache(nn.Module):
    """Keys and values of the positions seen so far, as buffers that calls change.

    `update` writes at `positions`; nothing is ever cleared: `seen` masks what is after a token's own position, so a call at
    position 0 starts a new sequence, and one at an earlier position goes back to there.
    """

    def __init__(self, heads: int, positions: int, width: int):
        super().__init__()
        self.keys = nn.Buffer(torch.zeros(1, heads, positions, width))
        self.values = nn.Buffer(torch.zeros(1, heads, positions, width))

    def update(self, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [1,H,N,D] at positions [N] of int64; returns all of them, [1,H,S,D] each."""
        # Not self.keys[:, :, positions] = keys, which drops the leading 1: the runtime's in-place kernel wants equal ranks.
        self.keys.index_copy_(2, positions, keys)
        self.values.index_copy_(2, positions, values)
        return self.keys, self.values


class Positions(nn.Module):
    """Positions of N new tokens from the position of the first, and which cache positions each may see."""

    def __init__(self, count: int):
        super().__init__()
        self.all = nn.Buffer(torch.arange(count), persistent=False)

    def forward(self, position: torch.Tensor, count: int) -> torch.Tensor:
        """[1] of int64 → [N]: position, position + 1, ..."""
        return position + self.all[:count]

    def seen(self, positions: torch.Tensor) -> torch.Tensor:
        """[N] → an additive mask [N,S]: 0 up to a token's own position, minus infinity after it."""
        return torch.where(self.all.unsqueeze(0) <= positions.unsqueeze(1), 0.0, float("-inf"))


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[B,N,H*D] → [B,H,N,D]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of scaled queries [B,H,N,D] over keys and values [B,H,S,D], heads joined: [B,N,H*D].

    Written out: a mask of `seen` never hides a whole row, so the guarded softmax of scaled_dot_product_attention is not needed.
    """
    scores = torch.matmul(query, keys.transpose(-1, -2))
    if mask is not None:
        scores = scores + mask
    return torch.matmul(torch.softmax(scores, -1), values).transpose(1, 2).flatten(2)
