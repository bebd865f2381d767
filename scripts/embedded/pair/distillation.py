"""Teaching the draft what the target would write: on real rows and on rows that the target wrote itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from pair import export
from pair.model import KeysValues, Qwen2
from pair.recipe import Recipe, Stage
from pair.rows import RowSampler

TEMPERATURE = 0.7
OWN_BATCH = 64


class TeacherLoss(torch.autograd.Function):
    """Mean cross entropy of the draft's law against the target's, a slice of rows at a time."""

    SLICE = 512

    @staticmethod
    def forward(ctx, hidden: Tensor, head: Tensor, teacher: Tensor, teacher_head: Tensor) -> Tensor:
        """hidden: [N, draft's width], teacher: [N, target's width], heads: [vocabulary, width]; bf16"""
        total = torch.zeros((), dtype=torch.float32)
        d_hidden = torch.empty_like(hidden)
        d_head = torch.zeros(head.shape, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for i in range(0, hidden.shape[0], TeacherLoss.SLICE):
            h, t = hidden[i : i + TeacherLoss.SLICE], teacher[i : i + TeacherLoss.SLICE]
            p = torch.softmax(t @ teacher_head.T, dim=-1, dtype=torch.float32)
            q = torch.softmax(h @ head.T, dim=-1, dtype=torch.float32)
            total -= (p * q.clamp(min=1e-30).log()).sum()
            gradient = ((q - p) / hidden.shape[0]).to(h.dtype)
            d_hidden[i : i + TeacherLoss.SLICE] = gradient @ head
            if d_head is not None:
                d_head += gradient.T @ h
        ctx.save_for_backward(d_hidden, d_head)
        return total / hidden.shape[0]

    @staticmethod
    def backward(ctx, scale: Tensor):
        d_hidden, d_head = ctx.saved_tensors
        d_head = None if d_head is None else (d_head * scale).to(d_hidden.dtype)
        return d_hidden * scale, d_head, None, None


class Lessons:
    """The draft's loss: its law against the target's, in one part of the rows on what the target wrote itself.

    The target's own rows are made once and kept in `folder`.
    """

    def __init__(self, target: Path, sampler: RowSampler, recipe: Recipe, folder: Path) -> None:
        self._teacher = export.load(target)
        self._sampler = sampler
        self._recipe = recipe
        self._folder = folder

    def __call__(self, draft: Qwen2, step: int, stage: Stage) -> Tensor:
        recipe = self._recipe
        ids = self._sampler.batch(recipe.seed + 1, step, stage)[:, :-1]
        if own_rows := round(stage.rows * recipe.own_share):
            start = step * own_rows % max(1, len(self._own) - own_rows)
            own = self._own[start : start + own_rows, -stage.row :].long()
            ids = torch.cat([ids[: stage.rows - own_rows], own])
        where = telling(ids, self._sampler.prefix, self._sampler.middle).flatten()
        with torch.no_grad():
            taught = self._teacher(ids).flatten(0, 1)[where]
        head = self._teacher.head.detach()
        return TeacherLoss.apply(draft(ids).flatten(0, 1)[where], draft.head, taught, head)

    @cached_property
    def _own(self) -> Tensor:
        """int16 [rows, tokens]"""
        place = self._folder / "own.pt"
        if not place.exists():
            torch.save(torch.cat(list(self._written())).short(), place)
        return torch.load(place, weights_only=True)

    def _written(self) -> Iterator[Tensor]:
        """Prompts, and what the target wrote after them, a batch at a time: the likeliest and drawn in turn."""
        recipe = self._recipe
        generator = torch.Generator().manual_seed(recipe.seed)
        for first in range(0, recipe.own_rows, OWN_BATCH):
            prompts = self._sampler.prompts(
                f"{recipe.seed} {first}", OWN_BATCH, recipe.draft_schedule.longest_row - recipe.own_tokens
            )
            temperature = TEMPERATURE * (first // OWN_BATCH % 2)
            yield written(self._teacher, torch.tensor(prompts), recipe.own_tokens, temperature, generator)
            print(f"the target's own rows: {first + OWN_BATCH} of {recipe.own_rows}", flush=True)


EARLIER = 4


def telling(ids: Tensor, prefix: int, middle: int) -> Tensor:
    """Which places of rows are asked; bool, as `ids`.

    A step's cost is mostly the two heads over the vocabulary, so they are asked where a draft will be: at every
    place after <|fim_middle|>, and at one in `EARLIER` of those before.
    """
    opened, filled = ((ids == control).cumsum(1) for control in (prefix, middle))
    return ((filled >= opened) & (filled > 0)) | (torch.arange(ids.shape[1]) % EARLIER == 0)


def beginning(target: Path, layers: Sequence[int]) -> dict[str, Tensor]:
    """What a draft begins as: the target without its other layers, by name, float32."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in export.load(target).state_dict().items():
        head, _, rest = name.partition("layers.")
        number, _, within = rest.partition(".")
        if not rest:
            tensors[name] = tensor.float()
        elif int(number) in layers:
            tensors[f"{head}layers.{layers.index(int(number))}.{within}"] = tensor.float()
    return tensors


@torch.no_grad()
def written(
    model: Qwen2, ids: Tensor, tokens: int, temperature: float, generator: torch.Generator | None = None
) -> Tensor:
    """ids [B, T] and `tokens` more for each row, drawn at `temperature` (0: the likeliest)."""
    past = [KeysValues() for _ in range(model.shape.layers)]
    fed = ids
    for _ in range(tokens):
        logits = (model(fed, past)[:, -1] @ model.head.T).float()
        if temperature:
            fed = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)
        else:
            fed = logits.argmax(-1, keepdim=True)
        ids = torch.cat([ids, fed], dim=1)
    return ids
