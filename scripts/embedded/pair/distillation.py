"""Teaching the draft what the target would write: on real rows and on rows that the target wrote itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from pair.model import KeysValues, Qwen2
from pair.recipe import Recipe, Stage
from pair.rows import RowSampler
from pair.training import Loss, next_token_loss

TEMPERATURE = 0.7
OWN_BATCH = 64


class TeacherLoss(torch.autograd.Function):
    """Mean cross entropy of the draft's law against the target's, a slice of rows at a time."""

    SLICE = 512

    @staticmethod
    def forward(ctx, hidden: Tensor, head: Tensor, teacher: Tensor, teacher_head: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """hidden: [N, draft's width], teacher: [N, target's width], heads: [vocabulary, width]; bf16"""
        total = torch.zeros((), dtype=torch.float32)
        d_hidden, d_head = torch.empty_like(hidden), torch.zeros(head.shape, dtype=torch.float32)
        for i in range(0, hidden.shape[0], TeacherLoss.SLICE):
            h, t = hidden[i : i + TeacherLoss.SLICE], teacher[i : i + TeacherLoss.SLICE]
            p = torch.softmax(t @ teacher_head.T, dim=-1, dtype=torch.float32)
            q = torch.softmax(h @ head.T, dim=-1, dtype=torch.float32)
            total -= (p * q.clamp(min=1e-30).log()).sum()
            gradient = ((q - p) / hidden.shape[0]).to(h.dtype)
            d_hidden[i : i + TeacherLoss.SLICE] = gradient @ head
            d_head += gradient.T @ h
        ctx.save_for_backward(d_hidden, d_head)
        return total / hidden.shape[0]

    @staticmethod
    def backward(ctx, scale: Tensor):  # type: ignore[no-untyped-def]
        d_hidden, d_head = ctx.saved_tensors
        return d_hidden * scale, (d_head * scale).to(d_hidden.dtype), None, None


def loss(teacher: Qwen2, sampler: RowSampler, recipe: Recipe, folder: Path) -> Loss:
    """First plain next tokens, which costs a fraction, then the target's law.

    Of each batch `own_share` of the rows are then the target's own writing, made once and kept in `folder`.
    """
    own = _own_rows(teacher, sampler, recipe, folder)
    plain_tokens = recipe.draft_plain * recipe.draft_schedule.tokens

    def teach(draft: Qwen2, step: int, stage: Stage) -> Tensor:
        if step * stage.batch < plain_tokens:
            return next_token_loss(draft, sampler.batch(recipe.seed + 1, step, stage))
        own_rows = round(stage.rows * recipe.own_share)
        start = step * own_rows % max(1, own.shape[0] - own_rows)
        ids = torch.cat(
            [
                sampler.batch(recipe.seed + 1, step, stage)[own_rows:, :-1],
                own[start : start + own_rows, : stage.row].long(),
            ]
        )
        with torch.no_grad():
            taught = teacher(ids).flatten(0, 1)
        return TeacherLoss.apply(draft(ids).flatten(0, 1), draft.head, taught, teacher.head.detach())

    return teach


def _own_rows(teacher: Qwen2, sampler: RowSampler, recipe: Recipe, folder: Path) -> Tensor:
    """int16 [N, length]: prompts the target went on from."""
    place = folder / "own.pt"
    if not place.exists():
        length = recipe.draft_schedule.longest_row
        count = min(recipe.own_rows, int(recipe.own_share * recipe.draft_schedule.tokens / length))
        folder.mkdir(parents=True, exist_ok=True)
        rows = torch.cat(list(_written(teacher, sampler, recipe.seed, count, length)))
        torch.save(rows.short(), place)
    return torch.load(place, weights_only=True)


def _written(teacher: Qwen2, sampler: RowSampler, seed: int, count: int, length: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for batch in range(-(-count // OWN_BATCH)):
        prompts = sampler.prompts(f"{seed} {batch}", OWN_BATCH, length // 2)
        yield written(teacher, torch.tensor(prompts), length // 2, TEMPERATURE, generator)
        print(f"the target's own rows: {(batch + 1) * OWN_BATCH} of {count}", flush=True)


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
