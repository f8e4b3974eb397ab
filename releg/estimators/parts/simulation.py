"""How most estimators begin and end: simulate every row, then build the answer from the gradients of the layers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg import bernoulli
from releg.estimators.base import Estimate, Estimator, mean_over_paths, surrogate_of
from releg.estimators.parts.signals import layer_signals
from releg.sbn import SigmoidBeliefNet, Trajectory


@dataclass(frozen=True)
class Simulation:
    """N paths through the inference net, what p and q say of them, and the signals, which are detached."""

    path: Trajectory
    generative_logits: list[Tensor]  # (N, H) of p(x | z[0]), ..., p(z[-1]), in the graph
    log_p_terms: list[Tensor]  # (N,) of the same conditionals, in the graph
    signals: list[Tensor]  # (N,) f_l per layer
    first: int = 0  # the layer of the model that is the first one here; its parents are x here

    @property
    def scores(self) -> list[Tensor]:
        """d log q / d logits, (N, H) per layer."""
        return [bernoulli.score(a.detach(), z) for a, z in zip(self.path.logits, self.path.z, strict=True)]

    @property
    def mean_slopes(self) -> list[Tensor]:
        """d mean / d logits, (N, H) per layer."""
        return [bernoulli.variance(a.detach()) for a in self.path.logits]

    @property
    def log_p(self) -> Tensor:
        """log p(x, z), (N,), in the graph."""
        return torch.stack(self.log_p_terms).sum(0)

    def frozen_slope(self, model: SigmoidBeliefNet, layer: int) -> Tensor:
        """d f_l / d z[l] with all other layers fixed, (N, H); log p(z[l] | ...) and log q(z[l] | ...) are linear in z.

        A flip also moves the logits of p(z[l-1] | z[l]) and of q(z[l+1] | z[l]), whose scores are known.
        """
        path, r, a, of_model = self.path, self.generative_logits, self.path.logits, self.first + layer
        generative_score = bernoulli.score(r[layer].detach(), path.parents()[layer])
        slope = (
            r[layer + 1].detach() - a[layer].detach() + generative_score @ model.generative[of_model].weight.detach()
        )
        if layer + 1 < len(path.z):
            deeper_score = bernoulli.score(a[layer + 1].detach(), path.z[layer + 1])
            slope = slope - deeper_score @ model.inference[of_model + 1].weight.detach()
        return slope

    def answer(self, logit_grads: list[Tensor], samples: int, auxiliary: Tensor | None = None) -> Estimate:
        """The estimate with these gradients, averaged over the `samples` consecutive rows of each image.

        Args:
            logit_grads: (N, H) per layer, estimates of d elbo / d logits.
            samples: paths per image.
            auxiliary: (N,) trains the estimator's own parameters, if it has any.
        """
        logit_grads = [gradient.detach() for gradient in logit_grads]
        return Estimate(
            elbo=mean_over_paths(self.signals[0], samples),
            surrogate=surrogate_of(self.log_p, self.path.logits, logit_grads, samples),
            logits=self.path.logits,
            auxiliary_loss=None if auxiliary is None else mean_over_paths(auxiliary, samples),
            logit_grads=logit_grads,
        )


class AlongPaths(Estimator):
    """An estimator whose answer is a function of the simulated paths, so that a measurement simulates them once."""

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Simulate one path per row, then estimate along them."""
        return self.along(model, simulate(model, x, noise))

    @abstractmethod
    def along(self, model: SigmoidBeliefNet, simulation: Simulation) -> Estimate:
        """The algorithm, given the paths."""


def simulate(
    model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor], first_logits: Tensor | None = None
) -> Simulation:
    """Simulate one path per row.

    Args:
        model: the nets.
        x: (N, data_size) binary.
        noise: (N, H) per layer; more than the model has layers is ignored.
        first_logits: (N, H) of z[0], if they are known.
    """
    path = model.infer(x, noise[: len(model.layers)], first_logits)
    return _scored(path, model.generative_logits(path.z))


@torch.no_grad()
def simulate_from(
    model: SigmoidBeliefNet, layer: int, below: Tensor, logits: Tensor, noise: Sequence[Tensor]
) -> Simulation:
    """Simulate a layer and the deeper ones, given the sample of its parents; without a graph.

    Args:
        model: the nets.
        layer: l, the first one of the result.
        below: (N, ...) x for layer 0, else z[l-1].
        logits: (N, H) of q(z[l] | below).
        noise: (N, H) of layer l and the deeper ones.
    """
    all_logits, z = [logits], [bernoulli.sample(logits, noise[0])]
    for deeper in range(layer + 1, len(model.layers)):
        all_logits.append(model.inference[deeper](z[-1]))
        z.append(bernoulli.sample(all_logits[-1], noise[deeper - layer]))
    generated = [model.generative[layer + place](value) for place, value in enumerate(z)]
    path = Trajectory(below, below, list(noise), all_logits, z)
    return _scored(path, [*generated, model.prior_logits.expand_as(z[-1])], layer)


def _scored(path: Trajectory, generative_logits: list[Tensor], first: int = 0) -> Simulation:
    scored = zip(generative_logits, [path.x, *path.z], strict=True)
    log_p_terms = [bernoulli.log_prob(r, value).sum(-1) for r, value in scored]
    return Simulation(path, generative_logits, log_p_terms, layer_signals(log_p_terms, path.log_q_terms()), first)


def squared(logit_grads: Sequence[Tensor]) -> Tensor:
    """Sum of squares over all units of all layers, (N,): its expectation is the variance plus a constant.

    So its gradient w.r.t. a control variate's parameters is that of the variance (Tucker et al. 2017, section 3.2).
    """
    return torch.stack([gradient.square().flatten(1).sum(1) for gradient in logit_grads]).sum(0)
