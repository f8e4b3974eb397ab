"""The estimator contract. A new estimator is one file in this folder with a subclass of `Estimator`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from releg.checks import check_range
from releg.sbn import SigmoidBeliefNet


@dataclass(frozen=True)
class Estimate:
    """The answer for a batch of B images, simulated along N = B * samples paths (image by image)."""

    elbo: Tensor  # (B,) detached, nats per image
    surrogate: Tensor  # (B,) its gradient is the estimate of that of -elbo for every parameter; its value is any
    logits: list[Tensor]  # (N, H) per layer, the inference net's outputs, in the graph
    auxiliary_loss: Tensor | None = None  # (B,) trains the estimator's own parameters
    logit_grads: list[Tensor] | None = None  # (N, H) per layer, estimate of d elbo / d logits, if it has this form


class Estimator(nn.Module, ABC):
    """Estimates the gradient of the elbo. The answer is a deterministic function of model, x and noise."""

    label: str = ""  # what tables call it, if not by the name of its config
    unbiased: bool = True  # whether the expected answer is the gradient of the objective
    objective: Literal["elbo", "multi_sample"] = "elbo"  # multi_sample: the bound with `samples` samples
    samples: int = 1  # paths simulated per image

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create what depends on the sizes of the model, once, before use. Most estimators own nothing."""

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Draw all the randomness of one call, (N, H) per layer."""
        return model.draw_noise(repeated(x, self.samples), generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """Evaluations of f, or of a stand-in for it, per image. A prefix shared with another one does not count."""
        return self.samples

    def forward(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Check the input, estimate, check the result."""
        model.check_input(x)
        for layer, values in enumerate(noise):
            check_range(values, f"noise[{layer}]", "draw it with estimator.draw_noise(model, x)")
        answer = self.estimate(model, repeated(x, self.samples), noise)
        check_finite(model, answer.elbo)
        return answer

    @abstractmethod
    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """The algorithm, on checked input. x has one row per path, (N, data_size)."""


def repeated(x: Tensor, samples: int) -> Tensor:
    """x with one row per path, (B * samples, data_size), image by image."""
    return x if samples == 1 else x.repeat_interleave(samples, dim=0)


def surrogate_of(log_p: Tensor, logits: list[Tensor], logit_grads: list[Tensor], samples: int) -> Tensor:
    """-(log_p + sum(logit_grads * logits)), averaged over each image's paths: (B,).

    For the generative net its gradient is that of -log p(x, z). For the inference net it is -logit_grads,
    propagated back through the logits.
    """
    inner = sum((g * a).sum(-1) for g, a in zip(logit_grads, logits, strict=True))  # (N,)
    return -mean_over_paths(log_p + inner, samples)


def mean_over_paths(values: Tensor, samples: int) -> Tensor:
    """The mean over each image's paths, (B * samples, ...) -> (B, ...)."""
    return values if samples == 1 else values.unflatten(0, (-1, samples)).mean(1)


def check_finite(model: SigmoidBeliefNet, elbo: Tensor) -> None:
    """Raise FloatingPointError, naming the parameters at fault, unless every elbo is finite."""
    if bool(torch.isfinite(elbo).all()):
        return
    bad = [name for name, value in model.named_parameters() if not bool(torch.isfinite(value).all())]
    cause = f"not finite: {', '.join(bad)}" if bad else "all parameters are finite, but some are too large"
    raise FloatingPointError(
        f"the elbo of {int((~torch.isfinite(elbo)).sum())} of {len(elbo)} images is not finite ({cause}); "
        "expected finite numbers; start from the last good checkpoint with a lower learning rate"
    )
