"""The LightningModule: a pair of sigmoid belief nets with an injected estimator, optimiser and schedule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torchmetrics import MeanMetric

from lightning_modules.binary_images import training_mean
from lightning_modules.command_line.untrusted_configs import only_shipped_classes
from lightning_modules.compiled_step import Compile, compile_update, compiled, is_worth_compiling
from lightning_modules.schedules import DecayToZero
from releg import bounds, checkpoint_file
from releg.checks import check_at_least
from releg.estimators.base import Estimator, check_finite, repeated
from releg.rmsprop import paper_rmsprop
from releg.sbn import SigmoidBeliefNet
from releg.seeds import seed_for
from releg.weights import load as load_net

INSTANTIATOR = "pytorch_lightning.cli.instantiate_module"  # what Lightning builds a module of plain settings with
PRECISIONS = ("32", "32-true", "64", "64-true")
DARKEST = 0.001  # least probability that a pixel's bias may start with


class SBNModule(pl.LightningModule):
    """Trains a sigmoid belief net and its inference net on binary images with any estimator.

    All randomness is a function of the seed, the step and the rank, so a run that continues after an interruption draws
    the same numbers as one that was never interrupted. On several ranks (DDP) the loss, its gradient and all metrics
    are those of the global batch: every rank's images together.

    Args:
        layers: units per layer, shallow first: SBN(32-64-128-256) of the paper is [256, 128, 64, 32].
        estimator: estimates the gradient of the elbo.
        data_size: pixels per image; on the command line that of the data module.
        optimizer: builds the optimiser from parameter groups; the default is the paper's RMSprop.
        lr_scheduler: builds a schedule of the learning rate, stepped after every training step; none keeps it constant.
        weight_decay: coefficient on all weight matrices, not on biases and prior logits, whatever the optimiser.
        loss: whether the loss of a step is the sum or the mean over the mini-batch, that of all ranks together.
        val_samples: draws of z per image for val/elbo.
        test_samples: draws of z per image for test/elbo and the multi-sample bound.
        seed: of the initial weights and of the noise.
        learned_prior: whether the prior's logits are trained; if not, they stay 0, the uniform prior.
        pixel_bias: whether the biases of the pixels start at the logits of the training mean instead of 0.
        compile: whether torch.compile makes the steps faster; numbers stay the same but for rounding. `auto`: if there
            is a C++ compiler (on CUDA: triton) and the run is long enough to make up for the time that it takes.
    """

    def __init__(
        self,
        layers: list[int],
        estimator: Estimator,
        data_size: int,
        optimizer: OptimizerCallable = paper_rmsprop,
        lr_scheduler: LRSchedulerCallable | None = None,
        weight_decay: float = 0.001,
        loss: Literal["sum", "mean"] = "sum",
        val_samples: int = 1,
        test_samples: int = 10,
        seed: int = 0,
        learned_prior: bool = True,
        pixel_bias: bool = False,
        compile: Compile = "auto",
    ) -> None:
        super().__init__()
        check_at_least("weight_decay", weight_decay, 0, "the default is 0.001")
        check_at_least("val_samples", val_samples, 1, "the default is 1")
        check_at_least("test_samples", test_samples, 1, "the default is 10")
        _check_optimizer(optimizer, lr_scheduler, weight_decay)
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.weight_decay = weight_decay
        self.loss = loss
        self.val_samples = val_samples
        self.test_samples = test_samples
        self.seed = seed
        self.pixel_bias = pixel_bias
        generator = torch.Generator().manual_seed(seed_for(seed, "weights"))
        self.model = SigmoidBeliefNet(data_size, layers)
        self.model.reset_parameters(generator)
        self.model.prior_logits.requires_grad_(learned_prior)
        self.estimator = estimator
        self.estimator.attach(self.model, generator)
        self.compile_setting: Compile = compile
        self._compiled_loss: Callable[..., tuple[Tensor, Tensor]] | None = None
        self._compiled_rows: int | None = None  # images of the batches that the loss is compiled for
        self.elbo = MeanMetric()
        self.bound = MeanMetric()

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]  # Lightning's is a special descriptor
        cls, checkpoint_path: str | Path, map_location: Any = None, trust: bool = False, **kwargs: Any
    ) -> SBNModule:
        """The module of a checkpoint, which names the classes that it is made of.

        Args:
            checkpoint_path: a file.
            map_location: where the weights go.
            trust: whether classes may be used that are not shipped; their code is run.
            kwargs: settings in place of the checkpoint's.
        """
        with nullcontext() if trust else only_shipped_classes(Path(checkpoint_path)):
            settings = checkpoint_file.read(Path(checkpoint_path)).get("hyper_parameters", {})
            if (maker := settings.get("_instantiator", INSTANTIATOR)) != INSTANTIATOR and not trust:
                raise ValueError(f"{checkpoint_path} names {maker}, expected {INSTANTIATOR}; use one by releg fit")
            load_net(checkpoint_path)  # refuses a net that is not whole, or not of finite numbers
            return super().load_from_checkpoint(checkpoint_path, map_location, **kwargs)

    def setup(self, stage: str) -> None:
        """Centre the inputs on the training mean. A checkpoint, loaded after this, brings its own."""
        check_precision(self.trainer.precision)
        data = getattr(self.trainer, "datamodule", None)
        if stage == "fit":
            self.start_from(training_mean(data, self.model.mean.shape))
        elif hasattr(data, "mean"):
            self.model.mean.copy_(training_mean(data, self.model.mean.shape))

    def start_from(self, mean: Tensor) -> None:
        """Complete the initial weights by the mean of the training images, (data_size,): it centres the inputs."""
        self.model.mean.copy_(mean)
        if self.pixel_bias:
            shades = self.model.mean.clamp(DARKEST, 1 - DARKEST)  # a pixel that is never on would start at -infinity
            self.model.generative[0].bias.data.copy_(shades.logit())

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser, whose weight decay acts on weight matrices only, and the schedule if there is one."""
        if is_worth_compiling(self.compile_setting, self.device, self.trainer.max_steps):
            self.compile_step()
        optimizer = self.build_optimizer()
        if self.lr_scheduler is None:
            return {"optimizer": optimizer}
        scheduler = self.lr_scheduler(optimizer)
        if isinstance(scheduler, DecayToZero):
            scheduler.end_with(self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def build_optimizer(self) -> torch.optim.Optimizer:
        """The optimiser of all parameters, in a group with weight decay and one without."""
        weights = {id(linear.weight) for linear in self.modules() if isinstance(linear, nn.Linear)}
        parameters = list(self.parameters())
        groups = [
            {"params": [p for p in parameters if id(p) in weights], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if id(p) not in weights], "weight_decay": 0.0},
        ]
        optimizer = self.optimizer(groups)
        if self._compiled_loss is not None:
            compile_update(optimizer)
        return optimizer

    def compile_step(self) -> None:
        """Compile the loss, and the update of the optimiser that is built after this."""
        self._compiled_loss = compiled(_loss)

    def loss_of(self, x: Tensor, noise: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the loss, whose gradient is the estimate, and the elbo of each image, (B,).

        Everything that trains calls this: the Trainer, the benchmark and the time estimate.

        Neither x nor noise is checked. A compiled step is for batches as large as the loader's; others, like the last
        one of an epoch, are computed as they are.
        """
        if self._compiled_rows is None:
            self._compiled_rows = self._usual_rows(len(x))
        compiled_loss = self._compiled_loss if len(x) == self._compiled_rows else None
        loss = compiled_loss or _loss
        return loss(self.estimator, self.model, x, noise, self.loss)

    def _usual_rows(self, first: int) -> int:
        """Images per batch: what the loader says, or else as many as the first batch has."""
        loader = None if self._trainer is None else self._trainer.train_dataloader
        return getattr(loader, "batch_size", None) or first

    def training_step(self, x: Tensor, batch_idx: int) -> Tensor:
        """The loss of a batch, with the noise of this step."""
        step, ranks = self.global_step, self.trainer.world_size
        if batch_idx == 0:
            self.model.check_input(x)  # the rest comes from the same loader
        loss, elbo = self.loss_of(x, self.estimator.draw_noise(self.model, x, self.generator("noise", step)))
        if ranks > 1:
            # Each rank has updated its running averages with its own images; their mean over ranks covers all images
            for average in self.estimator.buffers():
                if average.is_floating_point():
                    average.copy_(self.trainer.strategy.reduce(average, reduce_op="mean"))
            if self.loss == "sum":  # DDP averages gradients over ranks, whose batches are equally large
                loss = loss * ranks
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if (step + 1) % every == 0:
            # logging at every step would take a noticeable part of a step this short
            check_finite(self.model, elbo)  # not at every step: it waits for the GPU
            mean = self.trainer.strategy.reduce(elbo.mean(), reduce_op="mean")
            self.log_metrics({"train/elbo": mean}, step + 1)
        return loss

    def validation_step(self, x: Tensor, batch_idx: int) -> None:
        """Accumulate val/elbo."""
        generator = self.generator("val", self.global_step, batch_idx)
        self.elbo.update(self._log_weights(x, batch_idx, self.val_samples, generator).mean(1))

    def on_validation_epoch_end(self) -> None:
        """Log val/elbo."""
        elbo = self.elbo.compute()
        check_finite(self.model, elbo[None])
        self.log_metrics({"val/elbo": elbo}, self.global_step)
        self.elbo.reset()

    def test_step(self, x: Tensor, batch_idx: int) -> None:
        """Accumulate test/elbo and the multi-sample bound from the same draws."""
        weights = self._log_weights(x, batch_idx, self.test_samples, self.generator("test", batch_idx))
        self.elbo.update(weights.mean(1))
        self.bound.update(bounds.log_mean_weight(weights))

    def on_test_epoch_end(self) -> None:
        """Log both bounds."""
        metrics = {"test/elbo": self.elbo.compute(), "test/multi_sample_bound": self.bound.compute()}
        self.log_metrics(metrics, self.global_step)
        self.elbo.reset()
        self.bound.reset()

    def predict_step(self, x: Tensor, batch_idx: int) -> Tensor:
        """Reconstructions of a batch, (B, data_size): p(x | z) for one z inferred from each image."""
        return self.model.reconstruct(x, generator=self.generator("predict", batch_idx))

    def _log_weights(self, x: Tensor, batch_idx: int, samples: int, generator: torch.Generator) -> Tensor:
        """Log weights (B, samples). Only the first batch of a loader is checked: the rest comes from there, too."""
        return bounds.log_weights(self.model, x, samples, generator, checked=batch_idx > 0)

    def log_metrics(self, metrics: dict[str, Tensor], step: int) -> None:
        """Log under the number of finished steps; Lightning's own count differs by one after an interruption."""
        self.log_dict({**metrics, "step": float(step)}, prog_bar=True)

    def generator(self, *position: int | str) -> torch.Generator:
        """Random numbers for one position of the run, different on every rank."""
        seed = seed_for(self.seed, *position, self.global_rank)
        return torch.Generator(self.device).manual_seed(seed)


def _loss(
    estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor], kind: str
) -> tuple[Tensor, Tensor]:
    """The loss, (), and the elbo of each image, (B,)."""
    answer = estimator.estimate(model, repeated(x, estimator.samples), noise)
    loss = answer.surrogate.sum()
    if answer.auxiliary_loss is not None:
        loss = loss + answer.auxiliary_loss.sum()
    return loss if kind == "sum" else loss / len(x), answer.elbo


def check_precision(precision: str | int | None) -> None:
    """ValueError unless it is a Trainer's float32 or float64: the engines compute in nothing else.

    In half precision a sum over 784 pixels would be off by whole nats.
    """
    if precision is not None and str(precision) not in PRECISIONS:
        raise ValueError(
            f"trainer.precision is {precision}, expected 32-true or 64-true, in which bounds and gradients are exact "
            "enough; leave it out for 32-true"
        )


def _check_optimizer(optimizer: OptimizerCallable, schedule: LRSchedulerCallable | None, weight_decay: float) -> None:
    """Build both for one parameter, so that a setting they refuse is known before training starts."""
    try:
        built = optimizer([nn.Parameter(torch.zeros(1))])
        scheduler = schedule(built) if schedule else None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error}, expected settings that the optimiser and the schedule accept") from error
    name = type(built).__name__
    if any(not group["lr"] > 0 for group in built.param_groups):
        raise ValueError(f"lr of {name} is {built.param_groups[0]['lr']}, expected a positive number such as 0.001")
    if weight_decay and "weight_decay" not in built.defaults:
        raise ValueError(f"{name} has no weight_decay option, got weight_decay {weight_decay}; set weight_decay to 0")
    own_decay = built.defaults.get("weight_decay", 0)
    if own_decay and own_decay != inspect.signature(type(built)).parameters["weight_decay"].default:
        raise ValueError(
            f"weight_decay of {name} is {own_decay}, expected it as the model's own; set model.weight_decay, which "
            "spares biases and priors"
        )
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError("lr_scheduler is a ReduceLROnPlateau, expected a function of the step; LinearDecay is one")
