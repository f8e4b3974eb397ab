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
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure.loop import Draw, Progress, frozen, run
from releg.sbn import SigmoidBeliefNet


class ImageMoments(NamedTuple):
    """Moments of the estimates for each of I images, S estimates each."""

    samples: int  # S
    within_by_mean: Tensor  # (layers, I) averaged over units
    squares_by_mean: Tensor  # (layers, I) E[g^2] averaged over units
    means_by_mean: list[Tensor]  # (I, H) per layer
    within_by_layer: Tensor  # (layers, I) over the weights and biases of a layer
    within: Tensor  # (I,) over all inference parameters, their sum
    square: Tensor  # (I,) E ||G||^2
    mean: list[Tensor]  # E G, (I, H, inputs + 1) per layer: weights, then the bias; float32, as they are many


@dataclass(frozen=True)
class Figure:
    """A mean over images and its standard error."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, values: Tensor) -> Figure:
        """The mean of one number per image."""
        return cls(float(values.mean()), float(values.std() / math.sqrt(len(values))))


@dataclass(frozen=True)
class Comparison:
    """The figures of one estimator."""

    layers: list[dict[str, Figure]]  # within, total and bias2 w.r.t. the means, shallow first
    within: Figure
    total: Figure
    bias2: Figure
    gradient2: float  # ||E C||^2, averaged over images: the scale of bias2
    within_by_image: list[list[float]]  # of each layer's weights and biases: of two estimators, paired by image

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for a JSON file."""
        named = {"within": self.within, "total": self.total, "bias2": self.bias2}
        return {
            "layers": [{kind: vars(figure) for kind, figure in layer.items()} for layer in self.layers],
            **{name: vars(figure) for name, figure in named.items()},
            "gradient2": self.gradient2,
            "within_by_image": [[float(f"{value:.6g}") for value in layer] for layer in self.within_by_image],
        }


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
    return collector.result(samples)


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
) -> Comparison:
    """Measure one estimator; `reference` is that of the same images, for the others see moments_of."""
    found = moments_of(estimator, model, images, samples, (seed, "compare"), progress)
    layers = []
    for layer, (own, average) in enumerate(zip(found.means_by_mean, reference.means_by_mean, strict=True)):
        within, other = found.within_by_mean[layer], reference.within_by_mean[layer]
        between = float(own.var(0).mean()) - float(within.mean()) / samples
        distance = (own - average).square().mean(1)
        layers.append(
            {
                "within": Figure.of(within),
                "total": _total(within, between, found.squares_by_mean[layer]),
                "bias2": Figure.of(distance - within / samples - other / reference.samples),
            }
        )
    count, middle = len(images), [layer.double().mean(0, keepdim=True) for layer in found.mean]
    spread = float(_squares(found.mean).mean() - _squares(middle).mean())
    distance = _squares([own.double() - average for own, average in zip(found.mean, reference.mean, strict=True)])
    return Comparison(
        layers,
        within=Figure.of(found.within),
        total=_total(found.within, count / (count - 1) * spread - float(found.within.mean()) / samples, found.square),
        bias2=Figure.of(distance - found.within / samples - reference.within / reference.samples),
        gradient2=float((_squares(reference.mean) - reference.within / reference.samples).mean()),
        within_by_image=found.within_by_layer.tolist(),
    )


class _GradientMoments:
    """Collects the moments of each image: by mean, and over all inference parameters."""

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = frozen(estimator)
        self._by_mean: list[list[Tensor]] = []  # (B, S, H) per layer, of each draw
        self._squares: list[Tensor] = []  # (L, B, S) ||G||^2 of each layer
        self._sums: list[list[Tensor]] = []  # (B, H, inputs + 1) per layer, the sum of G over the estimates
        self._blocks: list[ImageMoments] = []

    def add(self, draw: Draw) -> None:
        """Add the estimates for one draw; each is the mean over the K paths of the estimator."""
        found, images, paths = draw.gradients(self.estimator), len(draw.block), self.estimator.samples
        by_mean, sums, squares = [], [], []
        for gradient, variance, inputs in zip(found.by_mean, found.variances, found.inputs, strict=True):
            below = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1)  # the bias's input is 1
            by_logit, below = (values.unflatten(0, (images, -1, paths)) for values in (gradient * variance, below))
            by_mean.append(gradient.unflatten(0, (images, -1, paths)).mean(2))
            sums.append(by_logit.flatten(1, 2).mT @ below.flatten(1, 2) / paths)
            products = (by_logit @ by_logit.mT) * (below @ below.mT)  # (B, S, K, K)
            squares.append(products.sum((2, 3)) / paths**2)
        self._by_mean.append(by_mean)
        self._squares.append(torch.stack(squares))
        self._sums.append(sums)

    def finish(self, block: range) -> None:
        """Add these images."""
        by_mean = [torch.cat(layer, 1) for layer in zip(*self._by_mean, strict=True)]  # (B, S, H) per layer
        squares = torch.cat(self._squares, 2)  # (L, B, S)
        samples, square = squares.shape[2], squares.mean(2)
        mean = [torch.stack(layer).sum(0) / samples for layer in zip(*self._sums, strict=True)]
        within = samples / (samples - 1) * (square - _squares_by_layer(mean))  # (L, B)
        self._by_mean, self._squares, self._sums = [], [], []
        moments = ImageMoments(
            samples,
            within_by_mean=torch.stack([g.var(1).mean(1) for g in by_mean]),
            squares_by_mean=torch.stack([g.square().mean((1, 2)) for g in by_mean]),
            means_by_mean=[g.mean(1) for g in by_mean],
            within_by_layer=within,
            within=within.sum(0),
            square=square.sum(0),
            mean=[layer.float() for layer in mean],
        )
        self._blocks.append(moments)

    def result(self, samples: int) -> ImageMoments:
        """The moments of all images."""
        blocks = zip(*self._blocks, strict=True)
        _, within_by_mean, squares_by_mean, means_by_mean, within_by_layer, within, square, mean = blocks
        return ImageMoments(
            samples,
            torch.cat(within_by_mean, 1),
            torch.cat(squares_by_mean, 1),
            [torch.cat(layer) for layer in zip(*means_by_mean, strict=True)],
            torch.cat(within_by_layer, 1),
            torch.cat(within),
            torch.cat(square),
            [torch.cat(layer) for layer in zip(*mean, strict=True)],
        )


def _total(within: Tensor, between: float, squares: Tensor) -> Figure:
    """The standard error is that of E ||G||^2; that of ||E G||^2 is small in comparison."""
    return Figure(float(within.mean()) + between, Figure.of(squares).standard_error)


def _squares(gradients: list[Tensor]) -> Tensor:
    """||G||^2 of each image, (I,), from (I, H, inputs + 1) per layer."""
    return _squares_by_layer(gradients).sum(0)


def _squares_by_layer(gradients: list[Tensor]) -> Tensor:
    """||G||^2 of each layer and image, (L, I)."""
    return torch.stack([layer.double().square().sum((1, 2)) for layer in gradients])
