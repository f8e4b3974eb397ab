"""Pyro's likelihood ratio, TraceGraph_ELBO, with the same nets, baselines and optimiser as ours."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import TraceGraph_ELBO
from torch import Tensor, nn

from lightning_modules.sbn_module import SBNModule
from lightning_modules.training_step import TrainingStep
from releg.baselines import InputDependent
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.seeds import seed_for

DECAY = 0.8  # of the running average, as in releg.baselines


class PyroStep(TrainingStep):
    """The step of TrainingStep with Pyro's estimate: one multivariate Bernoulli site per layer, rows in a plate.

    The gradient has the same expectation as ours, and the baselines are the same up to one thing: Pyro keeps a running
    average per position in the batch. Pyro's validation is switched off, which makes it faster. Its random numbers come
    from torch's global generator, and its averages live in its global store: make one PyroStep at a time.

    Args:
        module: with LikelihoodRatio, the first of whose baselines is InputDependent.
        seed: of Pyro's random numbers.
    """

    def __init__(self, module: SBNModule, seed: int) -> None:
        super().__init__(module, seed)
        pyro.enable_validation(False)
        pyro.set_rng_seed(seed_for(seed, "pyro") % 2**32)
        self.elbo = TraceGraph_ELBO(max_plate_nesting=1)
        self._rows = 0

    def __call__(self, x: Tensor) -> None:
        """Train on x (B, data_size) once."""
        self.optimizer.zero_grad()
        self.backward(x)
        self.optimizer.step()

    def backward(self, x: Tensor) -> None:
        """Add the gradient of the loss, summed over the rows of x, to every parameter's .grad."""
        if len(x) != self._rows:
            self._rows = len(x)
            pyro.clear_param_store()  # the averages have the shape of the batch
        self.elbo.loss_and_grads(self.generate, self.infer, x)

    def generate(self, x: Tensor) -> None:
        """p(x, z), deepest layer first."""
        model = self.module.model
        with pyro.plate("rows", len(x)):
            logits = model.prior_logits.expand(len(x), -1)
            for layer in reversed(range(len(model.layers))):
                z = pyro.sample(f"z{layer}", dist.Bernoulli(logits=logits).to_event(1))
                logits = model.generative[layer](z)
            pyro.sample("x", dist.Bernoulli(logits=logits).to_event(1), obs=x)

    def infer(self, x: Tensor) -> None:
        """q(z | x), shallow first, with the baseline of each layer."""
        model, nets = self.module.model, self._baseline_nets()
        with pyro.plate("rows", len(x)):
            below = x - model.mean
            for layer, linear in enumerate(model.inference):
                options: Any = {"baseline": baseline(nets[layer], below)}
                below = pyro.sample(f"z{layer}", dist.Bernoulli(logits=linear(below)).to_event(1), infer=options)

    def _baseline_nets(self) -> nn.ModuleList:
        estimator = self.module.estimator
        assert isinstance(estimator, LikelihoodRatio)
        first = estimator.baselines[0]
        assert isinstance(first, InputDependent)
        return first.nets


def baseline(net: nn.Module, below: Tensor) -> dict[str, Any]:
    """Pyro's settings for InputDependent and RunningAverage."""

    def predict(value: Tensor) -> Tensor:
        return torch.squeeze(net(value))  # (B,); of one row no dimension is left, as in Pyro's own sums

    return {
        "nn_baseline": predict,
        "nn_baseline_input": below,
        "use_decaying_avg_baseline": True,
        "baseline_beta": DECAY,
    }
