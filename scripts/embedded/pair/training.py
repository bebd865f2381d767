"""The training loop: resumable at any step, one run in one folder."""

from __future__ import annotations

import ctypes
import json
import math
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from pair.model import HeadLoss, Qwen2, Shape
from pair.muon import Muon
from pair.recipe import Schedule, Stage

Loss = Callable[[Qwen2, int, Stage], Tensor]
"""(model in bf16, step, what the rows are to be) -> mean loss"""


EMBEDDING = "model.embed_tokens.weight"


def next_token_loss(model: Qwen2, ids: Tensor) -> Tensor:
    """ids: [B, T + 1]"""
    hidden = model(ids[:, :-1]).flatten(0, 1)
    return HeadLoss.apply(hidden, model.head, ids[:, 1:].flatten())


def keep_freed_memory() -> None:
    """glibc gives large freed blocks back to the kernel, which costs a quarter of each step in page faults."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_max = -1, -4  # <malloc.h>
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_max, 0)


class Run:
    """float32 masters are optimised; forward and backward run on a bf16 copy of them.

    `beginning` is what the weights start as, by name, instead of by chance; the embedding, which is the head
    too, then stays as it is.
    """

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        schedule: Schedule,
        seed: int,
        beginning: dict[str, Tensor] | None = None,
    ) -> None:
        self.folder, self.schedule = folder, schedule
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        self.masters = {name: p.detach().clone() for name, p in Qwen2(shape).named_parameters()}
        self.model = Qwen2(shape).bfloat16()
        for name, tensor in (beginning or {}).items():
            self.masters[name].copy_(tensor)
        self.model.model.embed_tokens.requires_grad_(beginning is None)
        hidden = [m for name, m in self.masters.items() if m.ndim == 2 and name != EMBEDDING]
        others = [m for m in self.masters.values() if m.ndim != 2]
        if beginning is None:
            others.append(self.masters[EMBEDDING])
        momentum, decay = schedule.muon_momentum, schedule.weight_decay
        self.optimisers = [
            Muon(hidden, lr=schedule.muon_lr, momentum=momentum, weight_decay=decay),
            torch.optim.AdamW(others, lr=schedule.adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        self._peaks = [schedule.muon_lr, schedule.adam_lr]
        self.step, self.seen = 0, 0
        if (folder / "checkpoint.pt").exists():
            self._resume()
        self._refresh()

    def train(self, loss: Loss, minutes: float = math.inf, save_every: float = 300) -> None:
        """Until the schedule's tokens are seen, the minutes are over or the process is told to stop."""
        stopping: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: stopping.append(number))
        begun = saved = reported = time.monotonic()
        first, mean = self.seen, math.nan
        while self.seen < self.schedule.tokens and not stopping and time.monotonic() - begun < 60 * minutes:
            value = self.advance(loss)
            mean = value if math.isnan(mean) else 0.97 * mean + 0.03 * value
            now = time.monotonic()
            if now - reported > 10:
                reported = now
                self._report(mean, (self.seen - first) / (now - begun))
            if now - saved > save_every:
                saved = now
                self.save()
        self.save()

    def advance(self, loss: Loss) -> float:
        """One step; its loss."""
        stage = self.schedule.stage(self.seen)
        value = loss(self.model, self.step, stage)
        value.backward()
        rate = self.schedule.rate(self.step, self.seen)
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                self.masters[name].grad, parameter.grad = parameter.grad.float(), None
        for optimiser, peak in zip(self.optimisers, self._peaks, strict=True):
            optimiser.param_groups[0]["lr"] = peak * rate
            optimiser.step()
        self._refresh()
        self.step += 1
        self.seen += stage.rows * stage.row
        return value.item()

    def save(self) -> None:
        partial = self.folder / "checkpoint.partial"
        state = {
            "masters": self.masters,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "step": self.step,
            "seen": self.seen,
        }
        torch.save(state, partial)
        partial.rename(self.folder / "checkpoint.pt")

    def _resume(self) -> None:
        state = torch.load(self.folder / "checkpoint.pt", weights_only=True)
        for name, master in self.masters.items():
            master.copy_(state["masters"][name])
        for optimiser, held in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(held)
        self.step, self.seen = state["step"], state["seen"]

    @torch.no_grad()
    def _refresh(self) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(self.masters[name])

    def _report(self, loss: float, speed: float) -> None:
        left = (self.schedule.tokens - self.seen) / speed
        print(
            f"step {self.step}  {self.seen / 1e6:.2f} of {self.schedule.tokens / 1e6:.1f} M tokens  "
            f"loss {loss:.3f}  {speed:.0f} tokens/s  {left / 60:.0f} minutes left",
            flush=True,
        )
        with (self.folder / "log.jsonl").open("a") as file:
            entry = {"step": self.step, "seen": self.seen, "loss": round(loss, 4), "time": round(time.time())}
            file.write(json.dumps(entry) + "\n")
