"""Random models and data for the tests."""

import copy
from collections.abc import Sequence
from statistics import NormalDist

import torch
from torch import Tensor

from releg.estimators.base import Estimator
from releg.measure.loop import PathGradients, path_gradients
from releg.sbn import SigmoidBeliefNet, Trajectory


def random_model(
    data_size: int, layers: list[int], scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
) -> SigmoidBeliefNet:
    """A model whose every parameter, biases and prior included, is normal with the given scale."""
    generator = torch.Generator().manual_seed(seed)
    model = SigmoidBeliefNet(data_size, layers, torch.rand(data_size, generator=generator)).to(dtype)
    for parameter in model.parameters():
        parameter.data = scale * torch.randn(parameter.shape, generator=generator, dtype=dtype)
    return model


def random_x(rows: int, data_size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(rows, data_size, generator=generator) < 0.5).to(dtype)


def simulate(model: SigmoidBeliefNet, rows: int, seed: int = 0) -> tuple[Trajectory, list[Tensor]]:
    """A path of the inference net per row of random images, the same on every device, and the generative logits."""
    x = random_x(rows, model.data_size, seed, model.mean.dtype)
    noise = model.draw_noise(x, torch.Generator().manual_seed(seed))
    path = model.infer(x.to(model.mean.device), [layer.to(model.mean.device) for layer in noise])
    return path, [logits.detach() for logits in model.generative_logits(path.z)]


def mean_gradients(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> PathGradients:
    """The estimates w.r.t. the means along each path, in float64."""
    estimator, model = copy.deepcopy(estimator).double(), copy.deepcopy(model).double()
    return path_gradients(estimator, model, x.double(), [u.double() for u in noise])


def error(left: list[Tensor], right: list[Tensor]) -> float:
    """Largest difference, relative to the largest number where that exceeds 1."""
    pairs = [(a.detach().cpu(), b.detach().cpu()) for a, b in zip(left, right, strict=True)]
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs)


def largest_z(numbers: int, false_alarm: float = 1e-3) -> float:
    """The |z-score| that none of that many standard normal numbers exceeds, but for the given chance (Bonferroni)."""
    return NormalDist().inv_cdf(1 - false_alarm / (2 * numbers))
