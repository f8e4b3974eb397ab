"""The oracle: exact expectations by enumeration, for small models.

Enumerating the states of z gives log p(x), the bounds and the gradient of the elbo. Enumerating the cells of the noise
gives the expectation and variance of an estimator: the noise of a unit is only compared with the means that the unit
can have, so all noise values between two neighbouring means give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.estimators.base import Estimator
from releg.sbn import SigmoidBeliefNet

MOST_ROWS = 2**18  # most states or noise cells to enumerate


def states(units: int) -> Tensor:
    """All binary vectors of length `units`, (2**units, units)."""
    _check_size(2**units, f"{units} binary units")
    numbers = torch.arange(2**units)
    return (numbers[:, None] >> torch.arange(units)) & 1


def all_z(model: SigmoidBeliefNet) -> list[Tensor]:
    """Every configuration of all layers, (S, H) per layer."""
    joint = states(sum(model.layers)).to(model.mean)
    return list(joint.split(model.layers, dim=1))


def log_tables(model: SigmoidBeliefNet, x: Tensor) -> tuple[Tensor, Tensor]:
    """log p(x, z) and log q(z | x) for every row of x and every z: two differentiable (B, S) tables."""
    z = all_z(model)
    count = len(z[0])
    rows = x.repeat_interleave(count, dim=0)
    tiled = [layer.repeat(len(x), 1) for layer in z]
    return model.log_p(rows, tiled).view(-1, count), model.log_q(rows, tiled).view(-1, count)


def log_likelihood(model: SigmoidBeliefNet, x: Tensor) -> Tensor:
    """log p(x), (B,)."""
    log_p, _ = log_tables(model, x)
    return log_p.logsumexp(1)


def elbo(model: SigmoidBeliefNet, x: Tensor) -> Tensor:
    """E_q[log p(x, z) - log q(z | x)], (B,), differentiable in every parameter of both nets."""
    log_p, log_q = log_tables(model, x)
    return (log_q.exp() * (log_p - log_q)).sum(1)


def multi_sample(model: SigmoidBeliefNet, x: Tensor, samples: int) -> Tensor:
    """E[log mean_k p(x, z_k) / q(z_k | x)] over independent z_1 ... z_samples, (B,), over all tuples."""
    log_p, log_q = log_tables(model, x)
    count = log_p.shape[1]
    _check_size(count**samples, f"{samples} samples of {count} states")
    tuples = torch.cartesian_prod(*[torch.arange(count)] * samples).view(-1, samples)  # (S**K, K)
    weights = (log_p - log_q)[:, tuples]  # (B, S**K, K)
    bound = weights.logsumexp(-1) - math.log(samples)
    return (log_q[:, tuples].sum(-1).exp() * bound).sum(1)


def elbo_gradient(model: SigmoidBeliefNet, x: Tensor) -> dict[str, Tensor]:
    """Gradient of the elbo summed over the rows of x, for every parameter by name."""
    return _gradient(model, elbo(model, x))


def objective_gradient(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor) -> dict[str, Tensor]:
    """Gradient of the estimator's objective, the elbo or the multi-sample bound, summed over the rows of x, by name."""
    multi = estimator.objective == "multi_sample"
    return _gradient(model, multi_sample(model, x, estimator.samples) if multi else elbo(model, x))


def _gradient(model: SigmoidBeliefNet, objective: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(objective.sum(), parameters), strict=True))


@dataclass(frozen=True)
class Moments:
    """Expectation and variance, elementwise."""

    mean: Tensor
    variance: Tensor


Cells = list[tuple[Tensor, Tensor]]  # per unit: one noise value from each cell, and the cells' widths


def layer_cells(model: SigmoidBeliefNet, x: Tensor, layer: int, opposite: bool = False) -> Cells:
    """The cells of every unit of a layer, for one image x (1, D).

    Args:
        model: the model.
        x: the image.
        layer: index of the layer.
        opposite: whether 1 - noise is compared with the means as well.
    """
    inputs = x if layer == 0 else states(model.layers[layer - 1]).to(model.mean)
    means = torch.sigmoid(model.inference_logits(layer, inputs)).detach()  # (inputs, size)
    cells = []
    for unit in range(model.layers[layer]):
        inner = means[:, unit]
        inner = torch.cat([inner, 1 - inner]) if opposite else inner
        edges = torch.cat([means.new_zeros(1), inner, means.new_ones(1)]).unique()
        cells.append(((edges[1:] + edges[:-1]) / 2, edges[1:] - edges[:-1]))
    return cells


def noise_cells(
    model: SigmoidBeliefNet, x: Tensor, extra: Sequence[int] = (), opposite: bool = False
) -> tuple[list[Tensor], Tensor]:
    """One noise value from every cell, (C, H) per layer, and the cells' probabilities (C,), for one image x (1, D).

    Args:
        model: the model.
        x: the image.
        extra: layers whose units get noise a second time, after that of the path.
        opposite: whether 1 - noise of the path is compared with the means as well.
    """
    path = range(len(model.layers))
    by_layer = [*(layer_cells(model, x, layer, opposite) for layer in path), *(layer_cells(model, x, k) for k in extra)]
    units = [unit for layer in by_layer for unit in layer]
    _check_size(math.prod(len(values) for values, _ in units), "noise cells")
    noise = torch.cartesian_prod(*(values for values, _ in units)).view(-1, len(units))
    probability = torch.cartesian_prod(*(widths for _, widths in units)).view(-1, len(units)).prod(1)
    return list(noise.split([len(layer) for layer in by_layer], dim=1)), probability


def gradient_moments(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor) -> dict[str, Moments]:
    """Exact moments of the estimate of d objective / d parameter for one image x (1, D), by name.

    Only for estimators that compare the noise with means and do not use its value, so not for relaxations. If the
    answer is linear in each noise value within a cell (ARM), the mean is exact and the variance is not. The estimator
    is called in evaluation mode and keeps its state.
    """
    noise, weights = noise_tuples(estimator, model, x)
    gradients = row_gradients(estimator, model, x.expand(len(weights), -1), noise)
    return {name: _moments(gradient, weights) for name, gradient in gradients.items()}


def expected_gradient(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor) -> dict[str, Tensor]:
    """Expected estimate of d objective / d parameter for one image x (1, D), by name; much faster than the moments."""
    noise, weights = noise_tuples(estimator, model, x)
    return weighted_gradient(estimator, model, x.expand(len(weights), -1), noise, weights)


def noise_tuples(
    estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, extra: Sequence[int] = (), opposite: bool = False
) -> tuple[list[Tensor], Tensor]:
    """Noise of all tuples of `estimator.samples` cells, (C**K * K, H) per layer, and their probabilities (C**K,)."""
    noise, probability = noise_cells(model, x, extra, opposite)
    paths, count = estimator.samples, len(probability)
    _check_size(count**paths, f"{paths} paths of {count} noise cells")
    tuples = torch.cartesian_prod(*[torch.arange(count)] * paths).view(-1, paths)  # (C**K, K)
    return [layer[tuples.flatten()] for layer in noise], probability[tuples].prod(1)


def row_gradients(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, noise: list[Tensor]) -> dict[str, Tensor]:
    """The estimate of d elbo / d parameter for each image, (B, *shape) by parameter name."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    parts: list[tuple[Tensor, ...]] = []
    for _, surrogate in _surrogates(estimator, model, x, noise, block=128):
        pick_one = torch.eye(len(surrogate), dtype=surrogate.dtype, device=surrogate.device)
        parts.append(torch.autograd.grad(-surrogate, parameters, pick_one, is_grads_batched=True))
    return {name: torch.cat(pieces) for name, pieces in zip(names, zip(*parts, strict=True), strict=True)}


def weighted_gradient(
    estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, noise: list[Tensor], weights: Tensor, block: int = 4096
) -> dict[str, Tensor]:
    """The sum over images of weights (B,) times row_gradients, with one backward pass per block of images."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    totals = [torch.zeros_like(parameter) for parameter in parameters]
    for rows, surrogate in _surrogates(estimator, model, x, noise, block):
        for total, part in zip(totals, torch.autograd.grad(-surrogate, parameters, weights[rows]), strict=True):
            total += part
    return dict(zip(names, totals, strict=True))


def _surrogates(
    estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, noise: list[Tensor], block: int
) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of images and their surrogates, with the estimator in evaluation mode."""
    was_training = estimator.training
    estimator.eval()
    try:
        for start in range(0, len(x), block):
            rows = slice(start, start + block)
            paths = slice(start * estimator.samples, (start + block) * estimator.samples)
            yield rows, estimator(model, x[rows], [layer[paths] for layer in noise]).surrogate
    finally:
        estimator.train(was_training)


def _moments(values: Tensor, probability: Tensor) -> Moments:
    weight = probability.view(-1, *[1] * (values.dim() - 1))
    mean = (weight * values).sum(0)
    return Moments(mean, (weight * (values - mean).square()).sum(0))


def _check_size(rows: int, what: str) -> None:
    if rows > MOST_ROWS:
        raise ValueError(f"{what} make {rows} rows to enumerate, expected at most {MOST_ROWS}; use a smaller model")
