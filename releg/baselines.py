"""Baselines of the likelihood-ratio estimator: each subtracts what it can predict of a signal.

A baseline sees the signal of one layer and the input of that layer, and returns the remainder. Baselines are applied in
order, each to the remainder of the one before; the squared remainder trains them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from releg.checks import check_at_least
from releg.sbn import SigmoidBeliefNet, Trajectory


class Baseline(nn.Module, ABC):
    """One baseline. It may depend on the input of a layer, never on the sample of that layer."""

    @abstractmethod
    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one predictor per layer of the model, with weights from the generator."""

    @abstractmethod
    def remainder(self, layer: int, below: Tensor, signal: Tensor) -> Tensor:
        """Signal (N,) minus the prediction from below (N, width); differentiable w.r.t. the parameters."""


class RunningAverage(Baseline):
    """c <- decay * c + (1 - decay) * mean(signal), one c per layer; the signal loses the value before the update.

    The input-independent baseline of NVIL (Mnih & Gregor 2014, section 2.3). Using the old value keeps the estimator
    unbiased.

    Args:
        decay: weight of the past.
    """

    average: Tensor

    def __init__(self, decay: float = 0.8) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"decay is {decay}, expected a number in [0, 1); the default is 0.8")
        self.decay = decay
        self.register_buffer("average", torch.zeros(0))

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one average per layer, initially zero."""
        self.average = torch.zeros(len(model.layers), dtype=model.mean.dtype, device=model.mean.device)

    def remainder(self, layer: int, below: Tensor, signal: Tensor) -> Tensor:
        """Subtract the average of earlier batches; in training mode, update it with this batch."""
        _check_attached("average", len(self.average), layer)
        average = self.average[layer]
        remainder = signal - average
        if self.training:
            average.lerp_(signal.detach().mean(), 1 - self.decay)
        return remainder


class InputDependent(Baseline):
    """c(below): one net of `hidden` tanh units per layer, trained to predict the layer's signal (NVIL, section 2.3).

    Args:
        hidden: number of tanh units.
    """

    def __init__(self, hidden: int = 100) -> None:
        super().__init__()
        check_at_least("hidden", hidden, 1, "the paper's baselines have 100")
        self.hidden = hidden
        self.nets = nn.ModuleList()

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one net per layer, on the input of that layer; the shallowest sees x minus the training mean."""
        widths = [model.data_size, *model.layers[:-1]]
        nets = (nn.Sequential(nn.Linear(width, self.hidden), nn.Tanh(), nn.Linear(self.hidden, 1)) for width in widths)
        self.nets = nn.ModuleList(net.to(model.mean) for net in nets)
        for module in self.nets.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)

    def remainder(self, layer: int, below: Tensor, signal: Tensor) -> Tensor:
        """Subtract the prediction of the net."""
        _check_attached("net", len(self.nets), layer)
        prediction: Tensor = self.nets[layer](below)
        return signal - prediction.squeeze(-1)


def _check_attached(what: str, count: int, layer: int) -> None:
    if layer >= count:
        raise ValueError(
            f"the baseline has no {what} for layer {layer}, expected {layer + 1} or more; call estimator.attach(model) "
            "before the first use"
        )


class BaselineStack(nn.ModuleList):
    """Baselines applied in order, each to the remainder of the one before."""

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create the nets and averages of all baselines."""
        for part in self._parts():
            part.attach(model, generator)

    def remainders(self, path: Trajectory, signals: list[Tensor]) -> list[Tensor]:
        """f_l - b_l per layer, (N,); differentiable w.r.t. the parameters of the baselines."""
        remainders = []
        for layer, (below, remainder) in enumerate(zip(path.layer_inputs(), signals, strict=True)):
            for part in self._parts():
                remainder = part.remainder(layer, below, remainder)
            remainders.append(remainder)
        return remainders

    def loss(self, remainders: list[Tensor]) -> Tensor | None:
        """Sum of the squared remainders, (N,), which trains the baselines; None if none has parameters."""
        squared = torch.stack(remainders).square().sum(0)
        return squared if squared.requires_grad else None

    def _parts(self) -> Iterator[Baseline]:
        for part in self:
            assert isinstance(part, Baseline)
            yield part
