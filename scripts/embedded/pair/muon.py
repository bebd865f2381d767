"""Muon (Jordan et al. 2024): momentum whose update is orthogonalised, for the matrices of the layers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def orthogonalised(update: Tensor, steps: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrix, roughly, by a quintic Newton-Schulz iteration in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update.bfloat16()
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if tall else x).to(update.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for matrix in group["params"]:
                state = self.state[matrix]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(matrix)
                velocity = state["velocity"]
                velocity.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonalised(matrix.grad.lerp(velocity, group["momentum"]))  # Nesterov
                rows, columns = matrix.shape
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)
