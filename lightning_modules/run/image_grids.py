"""What the model sees and dreams, for TensorBoard: data, reconstructions and samples from the prior."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor
from torchvision.utils import make_grid

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.sbn_module import SBNModule
from releg.sbn import SigmoidBeliefNet

SIDE = 8  # images per row and column


class ImageGrids(pl.Callback):
    """Writes the grids at the start and the end of a run and whenever the step has doubled."""

    def __init__(self) -> None:
        self._next_step = 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """At validations only: training is not held up in between."""
        due = trainer.global_step >= self._next_step or trainer.global_step >= trainer.max_steps
        if trainer.state.fn != "fit" or not due or not trainer.is_global_zero:
            return
        self._next_step = 2 * trainer.global_step
        writers = [logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        data = getattr(trainer, "datamodule", None)
        if not writers or not isinstance(data, BinarizedMNIST) or not isinstance(pl_module, SBNModule):
            return
        x = next(iter(data.eval_loader("val", 2 * SIDE * SIDE)))[: SIDE * SIDE].to(pl_module.device)
        for name, images in grids(pl_module.model, x, pl_module.generator("images", 0)).items():
            for writer in writers:
                writer.add_image(f"images/{name}", make_grid(images, SIDE, pad_value=0.5), trainer.global_step)


@torch.no_grad()
def grids(model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """(N, 1, 28, 28) each: the data, p(x | z) for z inferred from it, and p(x | z) for z drawn from the prior."""
    inferred = model.infer(x, model.draw_noise(x, generator)).z
    _, drawn = model.generate(model.draw_noise(x, generator), torch.rand(x.shape, generator=generator, device=x.device))
    images = {
        "data": x,
        "reconstruction": torch.sigmoid(model.generative_logits(inferred)[0]),
        "sample": torch.sigmoid(model.generative_logits(drawn)[0]),
    }
    return {name: values.view(-1, 1, 28, 28) for name, values in images.items()}
