"""Baselines of the likelihood-ratio estimator: each subtracts what it can predict of a signal.

A baseline sees the signal of one layer and the input of that layer, and returns the remainder. Baselines are applied in
order, each to the remainder of the one before; the squared remainder trains them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

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
        if layer >= len(self.average):
            raise ValueError(
                f"the baseline has no average for layer {layer}, expected {layer + 1} or more; "
                "call estimator.attach(model) before the first use"
            )
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
        if hidden < 1:
            raise ValueError(f"hidden is {hidden}, expected at least 1; the paper's baselines have 100")
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
        if layer >= len(self.nets):
            raise ValueError(
                f"the baseline has no net for layer {layer}, expected {layer + 1} or more; "
                "call estimator.attach(model) before the first use"
            )
        net = self.nets[layer]
        assert isinstance(net, nn.Sequential)
        assert isinstance(net[0], nn.Linear)
        if below.shape[1] != net[0].in_features:
            raise ValueError(
                f"the baseline net of layer {layer} takes {net[0].in_features} inputs, expected {below.shape[1]}; "
                "attach the estimator to this model with estimator.attach(model)"
            )
        output = net[2]
        assert isinstance(output, nn.Linear)
        if below.requires_grad or torch.is_autocast_enabled(below.device.type):
            return signal - net(below).squeeze(-1)
        weights = (net[0].weight, net[0].bias, output.weight, output.bias)
        return signal - _Prediction.apply(below, *weights).squeeze(-1)


class _Prediction(torch.autograd.Function):
    """w2 tanh(w1 below + b1) + b2, (N, 1), differentiable w.r.t. the weights; autograd would take 3 times as long."""

    @staticmethod
    def forward(ctx: Any, below: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        hidden = torch.addmm(b1, below, w1.T).tanh_()  # (N, hidden)
        ctx.save_for_backward(below, hidden, w2)
        return torch.addmm(b2, hidden, w2.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        below, hidden, w2 = ctx.saved_tensors
        inner = torch.ops.aten.tanh_backward(outer @ w2, hidden)
        return None, inner.T @ below, inner.sum(0), outer.T @ hidden, outer.sum(0)


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
