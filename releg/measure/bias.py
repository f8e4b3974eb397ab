"""Variance and bias of one estimator, by layer and over all inference parameters.

Let G be an estimate of the gradient w.r.t. all weights and biases of the inference net, with S estimates per image:

    within    E ||G - E G||^2, the trace of the covariance given the image, averaged over images
    total     within + the trace of the covariance of E G over images: the variance for a random image
    bias2     ||E G - E C||^2, where C is a long average of common random numbers. The variances of both means are
              subtracted, so the estimate is unbiased and can be negative

The same numbers per layer are for the gradient w.r.t. the mean of every unit, averaged over units, as in variance.py.
Everything is computed in float64, for the reason that loop.py gives. Standard errors are over images.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure.loop import Draw, Progress, frozen, run
from releg.measure.moments import RunningMoments
from releg.sbn import SigmoidBeliefNet

Figure = dict[str, float]  # a mean over images and its standard error


class ImageMoments(NamedTuple):
    """Moments of the estimates for each of I images."""

    by_mean: list[RunningMoments]  # (I, H) per layer, w.r.t. the means
    square: Tensor  # (layers, I) E ||G||^2 over the weights and biases of a layer
    within: Tensor  # (layers, I) E ||G - E G||^2 over these
    mean: list[Tensor]  # E G, (I, H, inputs + 1) per layer: weights, then the bias; float32, as they are many


def moments_of(
    estimator: Estimator,
    model: SigmoidBeliefNet,
    images: Tensor,
    samples: int,
    position: tuple[int, str],
    progress: Progress | None = None,
) -> ImageMoments:
    """Measure the moments of each image; model, estimator and torch's global random state stay as they are.

    Args:
        estimator: attached to the model, with trained baselines and control variates.
        model: the weights at which to measure.
        images: (I, data_size) of 0 and 1, any dtype.
        samples: estimates per image.
        position: the seed, and what is measured: where the noise comes from.
        progress: called with the number of images done since the last call.
    """
    collector = _GradientMoments(estimator)
    run([collector], model, images, range(len(images)), samples, position, progress)
    return collector.result()


def reference_moments(
    model: SigmoidBeliefNet, images: Tensor, samples: int, seed: int, progress: Progress | None = None
) -> ImageMoments:
    """The long average of common random numbers for each image, with noise that no measurement uses."""
    return moments_of(CommonRandomNumbers(), model, images, samples, (seed, "reference"), progress)


def compare(
    estimator: Estimator,
    model: SigmoidBeliefNet,
    images: Tensor,
    samples: int,
    reference: ImageMoments,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure one estimator; `reference` is that of the same images, for the others see moments_of.

    Returns numbers for a JSON file: within, total and bias2 over all parameters, and in `layers` w.r.t. the means;
    gradient2 is ||E C||^2, the scale of bias2; within_by_image, of the weights and biases of each layer, can be paired
    with that of another estimator.
    """
    found = moments_of(estimator, model, images, samples, (seed, "compare"), progress)
    count, middle = len(images), [layer.double().mean(0, keepdim=True) for layer in found.mean]
    spread = float(_squares(found.mean).mean() - _squares(middle).mean())
    within, noise = found.within.sum(0), _noise(reference)
    between = count / (count - 1) * spread - float(_noise(found).mean())
    distance = _squares([own.double() - average for own, average in zip(found.mean, reference.mean, strict=True)])
    return {
        "layers": [_figures_by_mean(*layer) for layer in zip(found.by_mean, reference.by_mean, strict=True)],
        "within": figure(within),
        "total": _total(within, between, found.square.sum(0)),
        "bias2": figure(distance - _noise(found) - noise),
        "gradient2": float((_squares(reference.mean) - noise).mean()),
        "within_by_image": [[float(f"{value:.6g}") for value in layer] for layer in found.within.tolist()],
    }


def figure(values: Tensor) -> Figure:
    """The mean of one number per image."""
    return {"value": float(values.mean()), "standard_error": float(values.std() / math.sqrt(len(values)))}


def _figures_by_mean(own: RunningMoments, reference: RunningMoments) -> dict[str, Figure]:
    """The figures of one layer w.r.t. the means, averaged over its units."""
    within, noise = own.variance().mean(1), (own.variance() / own.weight).mean(1)
    squares = (own.m2 / own.weight + own.mean.square()).mean(1)
    distance = (own.mean - reference.mean).square().mean(1)
    return {
        "within": figure(within),
        "total": _total(within, float(own.mean.var(0).mean() - noise.mean()), squares),
        "bias2": figure(distance - noise - (reference.variance() / reference.weight).mean(1)),
    }


def _noise(moments: ImageMoments) -> Tensor:
    """The variance of the mean over an image's estimates, (I,), over all inference parameters."""
    return moments.within.sum(0) / moments.by_mean[0].weight[:, 0]


class _GradientMoments:
    """Collects the moments of each image: by mean, and over all inference parameters."""

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = frozen(estimator)
        self._sums: list[_Sums] = []  # of each draw for the images at hand
        self._blocks: list[ImageMoments] = []

    def add(self, draw: Draw) -> None:
        """Add the estimates for one draw; each is the mean over the K paths of the estimator."""
        found, images, paths = draw.gradients(self.estimator), len(draw.block), self.estimator.samples
        sums = _Sums([], [], [])
        for gradient, variance, inputs in zip(found.by_mean, found.variances, found.inputs, strict=True):
            below = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1)  # the bias's input is 1
            by_logit, below = (values.unflatten(0, (images, -1, paths)) for values in (gradient * variance, below))
            by_mean = gradient.unflatten(0, (images, -1, paths)).mean(2)  # (B, S, H)
            sums.by_mean.append(RunningMoments.of(by_mean, 1))
            sums.gradient.append(by_logit.flatten(1, 2).mT @ below.flatten(1, 2) / paths)
            products = (by_logit @ by_logit.mT) * (below @ below.mT)  # (B, S, K, K)
            sums.square.append(products.sum((1, 2, 3)) / paths**2)
        self._sums.append(sums)

    def finish(self, block: range) -> None:
        """Add these images."""
        by_mean, squares, gradients = zip(*self._sums, strict=True)
        moments = [RunningMoments.stacked(layer).pooled(0) for layer in zip(*by_mean, strict=True)]
        samples = moments[0].weight[:, 0]  # (B,)
        mean = [torch.stack(layer).sum(0) / samples[:, None, None] for layer in zip(*gradients, strict=True)]
        square = torch.stack([torch.stack(layer).sum(0) / samples for layer in zip(*squares, strict=True)])  # (L, B)
        within = samples / (samples - 1) * (square - _squares_by_layer(mean))
        self._blocks.append(ImageMoments(moments, square, within, [layer.float() for layer in mean]))
        self._sums = []

    def result(self) -> ImageMoments:
        """The moments of all images."""
        by_mean, square, within, mean = zip(*self._blocks, strict=True)
        moments = [RunningMoments.stacked(layer, torch.cat) for layer in zip(*by_mean, strict=True)]
        means = [torch.cat(layer) for layer in zip(*mean, strict=True)]
        return ImageMoments(moments, torch.cat(square, 1), torch.cat(within, 1), means)


class _Sums(NamedTuple):
    """Over the estimates of one draw, for each of B images: a list entry per layer."""

    by_mean: list[RunningMoments]  # (B, H)
    square: list[Tensor]  # (B,) of ||G||^2
    gradient: list[Tensor]  # (B, H, inputs + 1) of G


def _total(within: Tensor, between: float, squares: Tensor) -> Figure:
    """The standard error is that of E ||G||^2; that of ||E G||^2 is small in comparison."""
    return figure(squares) | {"value": float(within.mean()) + between}


def _squares(gradients: list[Tensor]) -> Tensor:
    """||G||^2 of each image, (I,), from (I, H, inputs + 1) per layer."""
    return _squares_by_layer(gradients).sum(0)


def _squares_by_layer(gradients: list[Tensor]) -> Tensor:
    """||G||^2 of each layer and image, (L, I)."""
    return torch.stack([layer.double().square().sum((1, 2)) for layer in gradients])
