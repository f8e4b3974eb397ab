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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure.loop import Draw, PathGradients, Progress, frozen, run
from releg.sbn import SigmoidBeliefNet


class ImageMoments(NamedTuple):
    """Moments of the estimates for one image."""

    within_by_mean: list[float]  # per layer, averaged over units
    means_by_mean: list[Tensor]  # (H,) per layer
    squares_by_mean: list[float]  # per layer, E[g^2] averaged over units
    within: float  # over all inference parameters
    square: float  # E ||G||^2
    mean: list[Tensor]  # E G, (H, inputs + 1) per layer: weights, then the bias; float32, as they are many


@dataclass(frozen=True)
class Figure:
    """A mean over images and its standard error."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The mean of one number per image."""
        numbers = torch.tensor(values, dtype=torch.float64)
        return cls(float(numbers.mean()), float(numbers.std() / math.sqrt(len(values))))


@dataclass(frozen=True)
class Comparison:
    """The figures of one estimator."""

    layers: list[dict[str, Figure]]  # within, total and bias2 w.r.t. the means, shallow first
    within: Figure
    total: Figure
    bias2: Figure
    gradient2: float  # ||E C||^2, averaged over images: the scale of bias2
    within_by_image: list[list[float]]  # of each layer w.r.t. the means: of two estimators, they are paired by image

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for a JSON file."""
        named = {"within": self.within, "total": self.total, "bias2": self.bias2}
        return {
            "layers": [{kind: vars(figure) for kind, figure in layer.items()} for layer in self.layers],
            **{name: vars(figure) for name, figure in named.items()},
            "gradient2": self.gradient2,
            "within_by_image": [[float(f"{value:.6g}") for value in layer] for layer in self.within_by_image],
        }


def reference_moments(
    model: SigmoidBeliefNet, images: Tensor, samples: int, seed: int, progress: Progress | None = None
) -> list[ImageMoments]:
    """The long average of common random numbers for each image, with noise that no measurement uses."""
    return _measured(CommonRandomNumbers(), model, images, samples, (seed, "reference"), progress)


def compare(
    estimator: Estimator,
    model: SigmoidBeliefNet,
    images: Tensor,
    samples: int,
    reference: list[ImageMoments],
    reference_samples: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Measure one estimator; model, estimator and torch's global random state stay as they are.

    Args:
        estimator: attached to the model, with trained baselines and control variates.
        model: the weights at which to measure.
        images: (I, data_size) of 0 and 1, any dtype.
        samples: estimates per image.
        reference: moments for the same images, see reference_moments.
        reference_samples: estimates per image in the reference.
        seed: of the noise.
        progress: called with the number of images done since the last call.
    """
    found = _measured(estimator, model, images, samples, (seed, "compare"), progress)
    counts = (samples, reference_samples)
    return Comparison(
        layers=[
            _layer_figures(found, layer, samples) | {"bias2": _layer_bias(found, reference, layer, counts)}
            for layer in range(len(model.layers))
        ],
        within=Figure.of([image.within for image in found]),
        total=_total(found, samples),
        bias2=Figure.of(
            [
                _distance(own.mean, average.mean) - own.within / samples - average.within / reference_samples
                for own, average in zip(found, reference, strict=True)
            ]
        ),
        gradient2=Figure.of([_square(image.mean) - image.within / reference_samples for image in reference]).value,
        within_by_image=[[image.within_by_mean[layer] for image in found] for layer in range(len(model.layers))],
    )


def _measured(
    estimator: Estimator,
    model: SigmoidBeliefNet,
    images: Tensor,
    samples: int,
    position: tuple[int, str],
    progress: Progress | None,
) -> list[ImageMoments]:
    collector = _GradientMoments(estimator)
    run([collector], model, images, range(len(images)), samples, position, progress)
    return collector.of_images


class _GradientMoments:
    """Collects the moments of each image: by mean, and over all inference parameters."""

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = frozen(estimator)
        self.of_images: list[ImageMoments] = []
        self._answers: list[_Answers] = []

    def add(self, draw: Draw) -> None:
        """Add the estimates for one draw."""
        self._answers.append(_answers(draw.gradients(self.estimator), len(draw.block), self.estimator.samples))

    def finish(self, block: range) -> None:
        """Add these images."""
        by_mean = [torch.cat(layer, 1) for layer in zip(*(part.by_mean for part in self._answers), strict=True)]
        squares = torch.cat([part.squares for part in self._answers], 1)  # (B, S)
        sums = [torch.stack(layer).sum(0) for layer in zip(*(part.sums for part in self._answers), strict=True)]
        self._answers = []
        for number in range(len(block)):
            of_image = [layer[number] for layer in by_mean]
            self.of_images.append(_moments(of_image, squares[number], [layer[number] for layer in sums]))


class _Answers(NamedTuple):
    """S estimates for each of B images; each is the mean over the K paths of the estimator."""

    by_mean: list[Tensor]  # (B, S, H) per layer
    squares: Tensor  # (B, S) ||G||^2
    sums: list[Tensor]  # (B, H, inputs + 1) per layer, the sum of G over the estimates


def _answers(found: PathGradients, images: int, paths: int) -> _Answers:
    by_mean, sums, squares = [], [], []
    for gradient, variance, inputs in zip(found.by_mean, found.variances, found.inputs, strict=True):
        below = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1)  # the bias's input is 1
        by_logit, below = (values.unflatten(0, (images, -1, paths)) for values in (gradient * variance, below))
        by_mean.append(gradient.unflatten(0, (images, -1, paths)).mean(2))
        sums.append(by_logit.flatten(1, 2).mT @ below.flatten(1, 2) / paths)
        products = (by_logit @ by_logit.mT) * (below @ below.mT)  # (B, S, K, K)
        squares.append(products.sum((2, 3)) / paths**2)
    return _Answers(by_mean, torch.stack(squares).sum(0), sums)


def _moments(by_mean: list[Tensor], squares: Tensor, sums: list[Tensor]) -> ImageMoments:
    """Of one image, from (S, H) per layer, (S,) and (H, inputs + 1) per layer."""
    samples, square = len(squares), float(squares.mean())
    mean = [layer / samples for layer in sums]
    return ImageMoments(
        within_by_mean=[float(g.var(0).mean()) for g in by_mean],
        means_by_mean=[g.mean(0) for g in by_mean],
        squares_by_mean=[float(g.square().mean()) for g in by_mean],
        within=samples / (samples - 1) * (square - _square(mean)),
        square=square,
        mean=[layer.float() for layer in mean],
    )


def _layer_figures(found: list[ImageMoments], layer: int, samples: int) -> dict[str, Figure]:
    within = Figure.of([image.within_by_mean[layer] for image in found])
    means = torch.stack([image.means_by_mean[layer] for image in found])
    between = float(means.var(0).mean()) - within.value / samples
    error = Figure.of([image.squares_by_mean[layer] for image in found]).standard_error
    return {"within": within, "total": Figure(within.value + between, error)}


def _layer_bias(
    found: list[ImageMoments], reference: list[ImageMoments], layer: int, samples: tuple[int, int]
) -> Figure:
    """Averaged over units, like the variances; `samples` are those of estimator and reference."""
    return Figure.of(
        [
            float((own.means_by_mean[layer] - average.means_by_mean[layer]).double().square().mean())
            - own.within_by_mean[layer] / samples[0]
            - average.within_by_mean[layer] / samples[1]
            for own, average in zip(found, reference, strict=True)
        ]
    )


def _total(found: list[ImageMoments], samples: int) -> Figure:
    """The standard error is that of E ||G||^2; that of ||E G||^2 is small in comparison."""
    count = len(found)
    within = Figure.of([image.within for image in found]).value
    middle = [torch.stack(layer).double().mean(0) for layer in zip(*(image.mean for image in found), strict=True)]
    squares = Figure.of([_square(image.mean) for image in found]).value
    between = count / (count - 1) * (squares - _square(middle)) - within / samples
    return Figure(within + between, Figure.of([image.square for image in found]).standard_error)


def _square(gradient: Sequence[Tensor]) -> float:
    return sum(float(layer.double().square().sum()) for layer in gradient)


def _distance(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    return sum(float((a.double() - b.double()).square().sum()) for a, b in zip(left, right, strict=True))
