"""Common random numbers, the estimator that the paper proposes ("ours")."""

from __future__ import annotations

from releg.checks import check_at_least
from releg.estimators.base import Estimate
from releg.estimators.parts.simulation import AlongPaths, Simulation
from releg.kernels import check_engine, flip_differences
from releg.sbn import SigmoidBeliefNet


class CommonRandomNumbers(AlongPaths):
    """d elbo / d mean_i = E[f1 - f0], f_k = log p(x, z) - log q(z | x) simulated with z_i = k and the same noise.

    Equation 2 and Algorithm 1 of Tokui & Sato (2016); for Bernoulli units (f1 - f0) d mean_i, section 2.
    Cost: one simulation plus one per unit, of which the fast engines compute only what the flip changes. Unbiased.

    Args:
        engine: computes f1 - f0: `cpu` (numba), `triton` (CUDA), `batched` (torch, any device), `dense` (every
            flip simulated), or `auto`: the first of these that runs on the tensors.
        samples: paths simulated per image; the estimate is their mean.
    """

    label = "CRN"

    def __init__(self, engine: str = "auto", samples: int = 1) -> None:
        super().__init__()
        check_at_least("samples", samples, 1, "one path per image is the paper's estimator")
        check_engine(engine)
        self.samples = samples
        self.engine = engine

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, plus the other value of every unit."""
        return self.samples * (1 + sum(model.layers))

    def along(self, model: SigmoidBeliefNet, simulation: Simulation) -> Estimate:
        """Multiply f1 - f0 from the engine by d mean / d logit."""
        differences = flip_differences(self.engine, model, simulation.path, simulation.generative_logits)
        logit_grads = [d * slope for d, slope in zip(differences, simulation.mean_slopes, strict=True)]
        return simulation.answer(logit_grads, self.samples)
