"""An autoencoder with one layer of categorical variables between two MLPs, as public Gumbel-softmax examples have it.

Sizes are arguments of `CategoricalVAE`. Its estimators are those of `releg.functional`.
"""

import math

import torch
from torch import Tensor, nn

from releg import bernoulli


class CategoricalVAE(nn.Module):
    """q(z | x) and p(x | z) for x of that mean; z has a uniform prior."""

    def __init__(
        self, mean: Tensor, variables: int = 30, states: int = 10, hidden: tuple[int, int] = (512, 256)
    ) -> None:
        super().__init__()
        self.shape = (variables, states)
        wide, narrow = hidden
        self.mean = mean
        self.encoder = nn.Sequential(
            *(nn.Linear(len(mean), wide), nn.ReLU(), nn.Linear(wide, narrow), nn.ReLU()),
            nn.Linear(narrow, variables * states),
        )
        last = nn.Linear(wide, len(mean))
        last.bias.data = torch.logit(mean.clamp(0.01, 0.99))  # the mean of x need not be learned
        self.decoder = nn.Sequential(
            *(nn.Linear(variables * states, narrow), nn.ReLU(), nn.Linear(narrow, wide), nn.ReLU()), last
        )

    def logits(self, x: Tensor) -> Tensor:
        """Of q(z | x), (N, variables, states)."""
        found: Tensor = self.encoder(x - self.mean).unflatten(1, self.shape)
        return found

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x | z), (N,), for one-hot z of the shape of the logits. This is f for the estimators."""
        return bernoulli.log_prob(self.decoder(z.flatten(1)), x).sum(-1)

    def divergence(self, logits: Tensor) -> Tensor:
        """KL of q(z | x) from the prior, (N,); it needs no sample."""
        log_q = logits.log_softmax(-1)
        return (log_q.exp() * (log_q + math.log(self.shape[1]))).sum((1, 2))
