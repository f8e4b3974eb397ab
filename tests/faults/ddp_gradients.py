"""python -m tests.faults.ddp_gradients FOLDER: train a few steps of a global batch of 100, keep gradients.

On its own, or on several ranks started by torch.distributed.run; on any number of them with the same images and noise.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_modules import compiled_step
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line.console import quieten
from lightning_modules.sbn_module import SBNModule
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.straight_through import StraightThrough
from releg.sbn import SigmoidBeliefNet

STEPS = 3
CASES: dict[str, tuple[Callable[[], Estimator], str]] = {
    "lr-sum": (lambda: LikelihoodRatio([InputDependent(), RunningAverage()]), "sum"),
    "crn-sum": (CommonRandomNumbers, "sum"),
    "crn-sum-compiled": (CommonRandomNumbers, "sum"),
    "crn-mean": (CommonRandomNumbers, "mean"),
    "rloo-sum": (lambda: LeaveOneOut(samples=2), "sum"),
    "straight-through-sum": (StraightThrough, "sum"),  # autograd's own graph
}


class SharedNoise(SBNModule):
    """Every rank takes its rows of the noise of the global batch."""

    def __init__(self, estimator: Estimator, loss: str, compile: bool) -> None:
        super().__init__([12, 8, 5], estimator, 784, loss=loss, seed=3, compile=compile)  # type: ignore[arg-type]
        estimator.draw_noise = self.draw_noise  # type: ignore[method-assign]

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.global_step)
        paths = len(x) * self.estimator.samples
        whole = model.draw_noise(x[:1].expand(paths * self.trainer.world_size, -1), generator)
        return [noise[self.global_rank * paths :][:paths] for noise in whole]


class Recorder(pl.Callback):
    def __init__(self) -> None:
        self.gradients: list[dict[str, Tensor]] = []
        self.buffers: list[dict[str, Tensor]] = []
        self.images: list[Tensor] = []

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Tensor, _: int) -> None:
        self.images.append(batch)

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, _: object) -> None:
        named = pl_module.named_parameters()
        self.gradients.append({name: p.grad.clone() for name, p in named if p.grad is not None})
        self.buffers.append({name: buffer.clone() for name, buffer in pl_module.named_buffers()})


def record(case: str, ranks: int) -> Recorder:
    make_estimator, loss = CASES[case]
    recorder = Recorder()
    trainer = pl.Trainer(
        accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", max_steps=STEPS,
        callbacks=[recorder], precision="64-true", limit_val_batches=0, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = SharedNoise(make_estimator(), loss, compile=case.endswith("compiled"))
    with patch.object(compiled_step, "BACKEND", "aot_eager"):  # traced as always; test_compiled_step.py has the code
        trainer.fit(module, datamodule=BinarizedMNIST(batch_size=100 // ranks))
    return recorder


if __name__ == "__main__":
    quieten()
    torch.set_num_threads(1)
    for name in CASES:
        seen = record(name, ranks=2)
        rank = torch.distributed.get_rank()
        torch.save(
            {"gradients": seen.gradients, "buffers": seen.buffers, "images": seen.images},
            Path(sys.argv[1]) / f"{name}-{rank}.pt",
        )
