"""A Qwen2 model to train: the arithmetic and the tensor names of transformers' Qwen2ForCausalLM."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from msgspec import Struct
from torch import Tensor, nn


class Shape(Struct, frozen=True, kw_only=True):
    """Within the limits that let a model be widened to Qwen2.5-Coder's own shapes (DESIGN, last section)."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    max_tokens: int = 2048
    rope_theta: float = 1e6
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.hidden != self.heads * self.head_dim:
            raise ValueError("Qwen2 wants hidden = heads x head_dim")
        if self.head_dim not in (32, 64) or self.kv_heads > 2 or self.heads > 5 * self.kv_heads:
            raise ValueError("head_dim is 32 or 64, with at most 2 KV heads and 5 query heads for each")
        if self.hidden > 896 or self.ffn > 4864 or self.layers > 24:
            raise ValueError("too large to be widened to 0.5B")


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, queries)
        self.k_proj = nn.Linear(shape.hidden, keys)
        self.v_proj = nn.Linear(shape.hidden, keys)
        self.o_proj = nn.Linear(queries, shape.hidden, bias=False)

    def forward(self, x: Tensor, rope: Rope, past: KeysValues | None) -> Tensor:
        """x: [B, T, hidden]"""
        b, t, _ = x.shape
        q, k, v = (
            projection(x).view(b, t, -1, self.shape.head_dim).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )  # [B, heads, T, head_dim]
        q, k = rotate(q, rope), rotate(k, rope)
        if past is not None:
            k, v = past.append(k, v)
        group = self.shape.heads // self.shape.kv_heads
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = attend(q, k, v)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, rope: Rope, past: KeysValues | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, past)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)

    def forward(self, ids: Tensor, past: list[KeysValues] | None = None) -> Tensor:
        """ids: [B, T]; the normed hidden states, [B, T, hidden]"""
        x = self.embed_tokens(ids)
        start = past[0].length if past else 0
        rope = Rope.at(self.shape, start, ids.shape[1], x.dtype)
        for i, layer in enumerate(self.layers):
            x = layer(x, rope, past[i] if past else None)
        return self.norm(x)


class Qwen2(nn.Module):
    """Embedding and head are tied."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", ".bias")):
                nn.init.zeros_(parameter)  # every layer starts as the identity
            elif parameter.ndim == 2:
                width = shape.hidden if "embed" not in name else 4 * shape.hidden
                nn.init.normal_(parameter, std=width**-0.5)

    def forward(self, ids: Tensor, past: list[KeysValues] | None = None) -> Tensor:
        return self.model(ids, past)

    @property
    def head(self) -> Tensor:
        """[vocabulary, hidden]"""
        return self.model.embed_tokens.weight


class Rope(Struct, frozen=True):
    cos: Tensor
    sin: Tensor
    """[T, head_dim]"""

    @classmethod
    def at(cls, shape: Shape, start: int, length: int, dtype: torch.dtype) -> Rope:
        exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        positions = torch.arange(start, start + length, dtype=torch.float32)
        angles = torch.outer(positions, shape.rope_theta**-exponents)
        angles = torch.cat([angles, angles], dim=-1)
        return cls(angles.cos().to(dtype), angles.sin().to(dtype))


def rotate(x: Tensor, rope: Rope) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * rope.cos + torch.cat([-right, left], dim=-1) * rope.sin


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[B, heads, T, head_dim]. One query row sees every key; several start from an empty cache, causally.

    Blocks of queries with plain products: on a CPU half the time of the fused kernel, whose backward is slow.
    """
    t = q.shape[2]
    if t == 1:
        return F.scaled_dot_product_attention(q, k, v)
    q = q * q.shape[-1] ** -0.5
    later = torch.full((BLOCK, BLOCK), -torch.inf, dtype=q.dtype).triu(1)
    rows = []
    for start in range(0, t, BLOCK):
        end = min(start + BLOCK, t)
        scores = q[:, :, start:end] @ k[:, :, :end].transpose(-1, -2)
        scores = scores + F.pad(later[: end - start, : end - start], (start, 0))
        rows.append(torch.softmax(scores, dim=-1) @ v[:, :, :end])
    return torch.cat(rows, dim=2)


BLOCK = 256


class KeysValues:
    """What one layer remembers of a batch while it generates."""

    def __init__(self) -> None:
        self._held: tuple[Tensor, Tensor] | None = None

    @property
    def length(self) -> int:
        return 0 if self._held is None else self._held[0].shape[2]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self._held is not None:
            k, v = torch.cat([self._held[0], k], dim=2), torch.cat([self._held[1], v], dim=2)
        self._held = k, v
        return k, v


class HeadLoss(torch.autograd.Function):
    """Mean cross entropy of a tied head, a slice of rows at a time: [rows, vocabulary] is never held whole.

    The gradients are made on the way, since the logits are at hand; `backward` only scales them.
    """

    SLICE = 512

    @staticmethod
    def forward(ctx, hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
        """hidden: [N, hidden] bf16, head: [vocabulary, hidden] bf16, targets: int64 [N]"""
        n = hidden.shape[0]
        total = torch.zeros((), dtype=torch.float32)
        d_hidden, d_head = torch.empty_like(hidden), torch.zeros(head.shape, dtype=torch.float32)
        for i in range(0, n, HeadLoss.SLICE):
            h, y = hidden[i : i + HeadLoss.SLICE], targets[i : i + HeadLoss.SLICE].unsqueeze(1)
            p = torch.softmax(h @ head.T, dim=-1, dtype=torch.float32)
            total -= p.gather(1, y).clamp_(min=1e-30).log_().sum()
            p.scatter_add_(1, y, torch.full(y.shape, -1.0))
            gradient = p.mul_(1 / n).to(h.dtype)
            d_hidden[i : i + HeadLoss.SLICE] = gradient @ head
            d_head += gradient.T @ h
        ctx.save_for_backward(d_hidden, d_head)
        return total / n

    @staticmethod
    def backward(ctx, scale: Tensor):
        d_hidden, d_head = ctx.saved_tensors
        return d_hidden * scale, (d_head * scale).to(d_hidden.dtype), None
