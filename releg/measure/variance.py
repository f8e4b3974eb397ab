"""Variance of the gradient w.r.t. the mean of every Bernoulli unit: the right panel of the paper's Figure 1.

For one image and unit let G be an estimate, m its mean and v its variance over the noise. Per layer:

    within    v, averaged over images and units: the part that depends on the estimator
    between   variance of m over the images, averaged over units: Var_i(sample mean) - v / S, since the mean of S
              estimates has variance v / S itself. Unbiased, so it can be negative if within is large
    total     within + between: the variance of the estimate for a random image

Likelihood ratio only, with d = f1 - f0 from common random numbers (the proof of Theorem 1 as a measurement):

    exact_within     Var(d) + E[(T - b)^2 / (mean (1 - mean))], T = f1 (1 - mean) + f0 mean: the unit's own noise is
                     integrated out, so rare flips of saturated units count even if none occurs
    optimal_within   the same with the best constant, per unit and image, added to the baseline b of the estimator;
                     without baselines, the optimal constant baseline. The constant is optimal for the sample,
                     E[(T - b) / (mean (1 - mean))] / E[1 / (mean (1 - mean))], so the value is low by about 1 / S

Standard errors are over images: jackknife, leaving out one of at most GROUPS groups of images at a time.

Everything is computed in float64, whatever the model's type. Uniform numbers in float32 are multiples of 2^-24, so a
unit with mean 1e-15 would be on in one of 2^24 samples, and its likelihood ratio of 1e15 would count 6e7 times too
often; a unit with mean 1 - 1e-15 would never be off.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from releg import bernoulli
from releg.estimators.base import Estimator, check_finite, check_noise_range, repeated
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.parts.simulation import AlongPaths, Simulation, simulate
from releg.measure.collected import EXACT, WITHIN, Collected, GradientVariances, Groups
from releg.measure.moments import RunningMoments
from releg.sbn import SigmoidBeliefNet
from releg.seeds import seed_for

PATHS_AT_ONCE = 500  # paths per call of an estimator; their arrays stay in the cache of an ordinary CPU
ANSWERS_PER_SEED = 100  # so the noise of an image depends neither on the other images nor on the size of a call
GROUPS = 100
SMALLEST_VARIANCE = math.exp(-300)  # mean (1 - mean) in exact_within; its inverse's square must not leave float64
Key = tuple[object, int]  # estimators with the same one have the same noise: see `_key`


class PathGradients(NamedTuple):
    """The estimates along each path, (N, H) per layer, one row per path."""

    by_mean: list[Tensor]  # estimates of d elbo / d mean, float64
    logits: list[Tensor]  # where they were made
    variances: list[Tensor]  # mean (1 - mean), float64
    z: list[Tensor]  # as they were simulated


def mean_gradients(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> PathGradients:
    """Gradient of -surrogate w.r.t. each path's logits, times the paths per image, over mean (1 - mean).

    If a unit is so saturated that mean (1 - mean) underflows (float32: |logit| > 87), everything is computed again in
    float64. Beyond that range (|logit| > 708) a gradient cannot be resolved and counts as zero.
    """
    model.check_input(x)
    check_noise_range(noise)
    return _mean_gradients(estimator, model, x, noise)


def _mean_gradients(
    estimator: Estimator,
    model: SigmoidBeliefNet,
    x: Tensor,
    noise: Sequence[Tensor],
    simulation: Simulation | None = None,
) -> PathGradients:
    """The same on checked input; the paths may have been simulated already."""
    if simulation is None:
        answer = estimator.estimate(model, repeated(x, estimator.samples), noise)
    else:
        assert isinstance(estimator, AlongPaths)
        answer = estimator.along(model, simulation)
    check_finite(model, answer.elbo)
    logits = [a.detach() for a in answer.logits]
    extreme = max(a.abs().max().item() for a in logits)
    if extreme > _largest_resolved(logits[0].dtype) and logits[0].dtype != torch.float64:
        wide_estimator, wide_model = copy.deepcopy(estimator).double(), copy.deepcopy(model).double()
        return _mean_gradients(wide_estimator, wide_model, x.double(), [u.double() for u in noise])
    gradients: Sequence[Tensor]
    if answer.logit_grads is not None:
        gradients = answer.logit_grads
    else:
        by_logits = torch.autograd.grad(-answer.surrogate.sum(), answer.logits, materialize_grads=True)
        gradients = [g * estimator.samples for g in by_logits]  # the surrogate is the mean over an image's paths
    limit = _largest_resolved(torch.float64)
    if simulation is not None and extreme <= limit:
        variances = simulation.mean_slopes
    else:
        variances = [bernoulli.variance(a.double().clamp(-limit, limit)) for a in logits]
    by_mean = [g.double() / v for g, v in zip(gradients, variances, strict=True)]
    z = [bernoulli.sample(a, u) for a, u in zip(logits, noise, strict=False)]
    return PathGradients(by_mean, logits, variances, z)


def _largest_resolved(dtype: torch.dtype) -> float:
    return -math.log(torch.finfo(dtype).tiny)


def measure(
    estimators: Mapping[str, Estimator],
    model: SigmoidBeliefNet,
    images: Tensor,
    samples_per_image: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> dict[str, GradientVariances]:
    """Gradient variances of all estimators, at the same weights, images and noise.

    Works on float64 copies in evaluation mode, with its own generators: model, estimators and torch's global random
    state do not change. A sample is one estimate, whatever the number of paths that the estimator simulates for it.

    Args:
        estimators: by name, attached to the model, with trained baselines.
        model: the weights at which to measure.
        images: (I, data_size) of 0 and 1, any dtype.
        samples_per_image: estimates per image.
        seed: of the noise.
        progress: called with the number of images done since the last call.
    """
    return collect(estimators, model, images, range(len(images)), samples_per_image, seed, progress).variances()


def collect(
    estimators: Mapping[str, Estimator],
    model: SigmoidBeliefNet,
    images: Tensor,
    part: range,
    samples_per_image: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Collected:
    """The moments behind `measure`, for some of the images only; parts can be merged."""
    _check_amounts(len(images), samples_per_image)
    model = copy.deepcopy(model).eval().double()
    model.check_input(images[part.start : part.stop].to(model.mean))
    constant = copy.deepcopy(model).requires_grad_(False)
    copies = {name: _frozen(estimator) for name, estimator in estimators.items()}
    reference = next((e for e in copies.values() if _answers_differences(e)), CommonRandomNumbers().eval())
    meters = {name: _Meter(estimator, min(GROUPS, len(images))) for name, estimator in copies.items()}
    answers = max(1, PATHS_AT_ONCE // max((e.samples for e in copies.values()), default=1))
    with torch.enable_grad():
        for block in _blocks(part, samples_per_image, answers):
            for samples in _spans(samples_per_image, answers):
                x = images[block.start : block.stop].to(model.mean)
                draw = _Draw(model, constant, reference, x, block, samples, seed)
                for meter in meters.values():
                    meter.add(draw)
            for meter in meters.values():
                meter.finish(block)
            if progress is not None:
                progress(len(block))
    return Collected(
        len(images),
        samples_per_image,
        {name: meter.kinds for name, meter in meters.items()},
        {name: meter.over_images for name, meter in meters.items()},
    )


def _frozen(estimator: Estimator) -> Estimator:
    """A float64 copy in evaluation mode, whose own parameters need no gradients."""
    return copy.deepcopy(estimator).eval().double().requires_grad_(False)


def _check_amounts(num_images: int, samples_per_image: int) -> None:
    for name, value in (("num_images", num_images), ("samples_per_image", samples_per_image)):
        if value < 2:
            raise ValueError(f"{name} is {value}, expected at least 2, as one has no variance; the paper has 1,000")


def _answers_differences(estimator: Estimator) -> bool:
    """Whether the estimates of d elbo / d mean are f1 - f0 themselves."""
    return isinstance(estimator, CommonRandomNumbers) and estimator.samples == 1


def _spans(samples: int, answers: int) -> Iterator[range]:
    """The samples of an image in spans that fit one call, with no seed split."""
    size = max(answers // ANSWERS_PER_SEED, 1) * ANSWERS_PER_SEED
    return (range(first, min(first + size, samples)) for first in range(0, samples, size))


def _blocks(part: range, samples: int, answers: int) -> Iterator[range]:
    """Blocks of images that fit one call."""
    size = max(1, answers // samples)
    return (range(first, min(first + size, part.stop)) for first in range(part.start, part.stop, size))


@dataclass
class _Draw:
    """The noise for a span of samples of a block of images, and f1 - f0 under this noise."""

    model: SigmoidBeliefNet
    constant: SigmoidBeliefNet  # the same without a graph, for estimators that need none
    reference: Estimator
    images: Tensor  # (B, data_size)
    block: range
    samples: range
    seed: int
    drawn: dict[Key, list[Tensor]] = field(default_factory=dict)
    simulated: dict[Key, Simulation] = field(default_factory=dict)
    differences: dict[Key, PathGradients] = field(default_factory=dict)

    def noise(self, estimator: Estimator) -> list[Tensor]:
        """The noise of the estimator for these rows, (N, H) per layer; shared by all that draw it the same way."""
        key = _key(estimator)
        if key not in self.drawn:
            self.drawn[key] = self._draw(estimator)
        return self.drawn[key]

    def _draw(self, estimator: Estimator) -> list[Tensor]:
        parts = []
        for image, x in zip(self.block, self.images, strict=True):
            for first in range(self.samples.start, self.samples.stop, ANSWERS_PER_SEED):
                seed = seed_for(self.seed, "variance", image, first)
                generator = torch.Generator(x.device).manual_seed(seed)
                rows = x.expand(min(ANSWERS_PER_SEED, self.samples.stop - first), -1)
                parts.append(estimator.draw_noise(self.model, rows, generator))
        return [torch.cat(layer) for layer in zip(*parts, strict=True)]

    def simulation(self, estimator: Estimator) -> Simulation:
        """The paths with the noise of the estimator; shared by all that draw it the same way."""
        key = _key(estimator)
        if key not in self.simulated:
            paths = len(self.samples) * estimator.samples  # of each image; their first logits are all the same
            first = repeated(self.constant.inference_logits(0, self.images), paths)
            self.simulated[key] = simulate(self.constant, repeated(self.images, paths), self.noise(estimator), first)
        return self.simulated[key]

    def gradients(self, estimator: Estimator) -> PathGradients:
        """The estimates of one estimator."""
        if estimator is self.reference:
            return self.flips(estimator)
        noise = self.noise(estimator)
        if _is_along_paths(estimator):
            simulation = self.simulation(estimator)
            return _mean_gradients(estimator, self.constant, simulation.path.x[:: estimator.samples], noise, simulation)
        return _mean_gradients(estimator, self.model, repeated(self.images, len(self.samples)), noise)

    def flips(self, estimator: Estimator) -> PathGradients:
        """f1 - f0 of every unit along the estimator's paths, computed once for all with the same noise."""
        key = _key(estimator)
        if key not in self.differences:
            simulation, noise = self.simulation(estimator), self.noise(estimator)
            x = simulation.path.x
            self.differences[key] = _mean_gradients(self.reference, self.constant, x, noise, simulation)
        return self.differences[key]


def _key(estimator: Estimator) -> Key:
    """Who draws the noise, and paths per estimate; what a subclass draws may depend on its settings, so it has its own.

    Its seeds are the same in any case.
    """
    shared = type(estimator).draw_noise is Estimator.draw_noise
    return (Estimator.draw_noise if shared else id(estimator)), estimator.samples


def _is_along_paths(estimator: Estimator) -> bool:
    """Whether it can be given simulated paths: those without a graph, unless a subclass has its own `estimate`."""
    return type(estimator).estimate is AlongPaths.estimate


class _Meter:
    """Collects the estimates of one estimator: first over the samples of a block of images, then over images."""

    def __init__(self, estimator: Estimator, groups: int) -> None:
        self.estimator = estimator
        self.exact = isinstance(estimator, LikelihoodRatio)
        self.kinds = [WITHIN, *(EXACT if self.exact else [])]
        self.at_hand: dict[tuple[str, int], RunningMoments] = {}  # by what and layer; (B, H)
        self.over_images: Groups = [{} for _ in range(groups)]

    def add(self, draw: _Draw) -> None:
        """Add the estimates for one draw."""
        answers = draw.gradients(self.estimator)
        images, paths = len(draw.block), self.estimator.samples
        for layer, gradient in enumerate(answers.by_mean):
            mean = gradient if paths == 1 else gradient.unflatten(0, (-1, paths)).mean(1)
            self._merge("answers", layer, RunningMoments.of(mean.unflatten(0, (images, -1)), 1))
            if self.exact:
                difference = draw.flips(self.estimator).by_mean[layer]
                self._merge("differences", layer, RunningMoments.of(difference.unflatten(0, (images, -1)), 1))
                target, weight = centred_targets(answers, layer, difference)
                moments = RunningMoments.of(
                    target.unflatten(0, (images, -1)), 1, weights=weight.unflatten(0, (images, -1))
                )
                self._merge("targets", layer, moments)

    def _merge(self, what: str, layer: int, moments: RunningMoments) -> None:
        self.at_hand[what, layer] = moments.merged(self.at_hand.get((what, layer)))

    def finish(self, block: range) -> None:
        """Add these images, after all their samples were added."""
        for layer in range(sum(what == "answers" for what, _ in self.at_hand)):
            rows = self._of_each_image(layer)
            for image, row in zip(block, rows, strict=True):
                group = self.over_images[image % len(self.over_images)]
                group[layer] = RunningMoments.of(row[None], 0).merged(group.get(layer))
        self.at_hand = {}

    def _of_each_image(self, layer: int) -> Tensor:
        """Mean estimate of each unit, then the variances of the layer: (B, H + 1), with the exact ones (B, H + 3)."""
        answers = self.at_hand["answers", layer]
        variances = [answers.variance()]
        if self.exact:
            differences, targets = self.at_hand["differences", layer], self.at_hand["targets", layer]
            least = targets.m2 / differences.weight  # of E[(T - b)^2 / (mean (1 - mean))], over b
            excess = least + targets.weight * targets.mean.square() / differences.weight
            # for independent paths, the variance of the mean is that of one path divided by their number
            variances += [(differences.variance() + e) / self.estimator.samples for e in (excess, least)]
        return torch.cat([answers.mean, *(v.mean(-1, keepdim=True) for v in variances)], dim=-1)


def centred_targets(answers: PathGradients, layer: int, difference: Tensor) -> tuple[Tensor, Tensor]:
    """T - b and 1 / (mean (1 - mean)) of every path and unit, from the estimates G = (f - b) d log q / d mean.

    With P the probability of the sampled z, f_z - b = ±P G, so T - b = ±P (G - d), + where z = 1.
    """
    logits = answers.logits[layer]
    sign = 2 * answers.z[layer].double() - 1
    target = sign * torch.sigmoid(sign * logits) * (answers.by_mean[layer] - difference)
    return target, 1 / answers.variances[layer].clamp(min=SMALLEST_VARIANCE)
