"""Common random numbers, the estimator that the paper proposes ("ours")."""

from __future__ import annotations

import torch

from releg.estimators.base import Estimate
from releg.estimators.parts.simulation import AlongPaths, Simulation, check_samples
from releg.kernels import EngineName, engine_for
from releg.sbn import SigmoidBeliefNet


class CommonRandomNumbers(AlongPaths):
    """d elbo / d mean_i = E[f1 - f0], f_k = log p(x, z) - log q(z | x) simulated with z_i = k and the same noise.

    Equation 2 and Algorithm 1 of Tokui & Sato (2016); for Bernoulli units (f1 - f0) d mean_i, section 2.
    Cost: one simulation plus one per unit, of which the fast engines compute only what the flip changes. Unbiased.

    Args:
        engine: computes f1 - f0: `cpu` (numba), `triton` (CUDA), `batched` (torch, any device), `dense` (every
            flip simulated), or `auto`: cpu for CPU tensors, triton for CUDA tensors, batched for other devices or where
            numba or triton is missing.
        samples: paths simulated per image; the estimate is their mean.
        entropy: replace -log q of the layers deeper than the flipped one by their entropies given their parents. This
            integrates out part of the noise: the expectation is the same, the variance lower.
        memory_mib: limit on the working memory of the batched engine, in MiB. The result does not depend on it.
        threads: of the cpu engine; None: as many as torch uses. The result does not depend on it.
    """

    closed_form = True

    def __init__(
        self,
        engine: EngineName = "auto",
        samples: int = 1,
        entropy: bool = False,
        memory_mib: float = 256.0,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        check_samples(samples, 1, "one path per image is the paper's estimator")
        self.samples = samples
        self.entropy = entropy
        self.engine = engine_for(engine, memory_mib, threads)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, plus the other value of every unit."""
        return self.samples * (1 + sum(model.layers))

    def along(self, model: SigmoidBeliefNet, simulation: Simulation) -> Estimate:
        """Multiply f1 - f0 from the engine by d mean / d logit."""
        with torch.no_grad():
            differences = self.engine(model, simulation.path, simulation.generative_logits, self.entropy)
            slopes = zip(differences, simulation.mean_slopes, strict=True)
            logit_grads = [difference * slope for difference, slope in slopes]
        return simulation.answer(logit_grads, self.samples)
