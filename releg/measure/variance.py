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
Everything is computed in float64, for the reason that loop.py gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from releg.estimators.base import Estimator
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.measure.loop import Draw, PathGradients, Progress, frozen, run
from releg.measure.moments import EXACT, WITHIN, GradientVariances, Groups, Moments, RunningMoments
from releg.sbn import SigmoidBeliefNet

GROUPS = 100
SMALLEST_VARIANCE = math.exp(-300)  # mean (1 - mean) in exact_within; its inverse's square must not leave float64


def measure(
    estimators: Mapping[str, Estimator],
    model: SigmoidBeliefNet,
    images: Tensor,
    samples_per_image: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
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
    return collect_moments(estimators, model, images, range(len(images)), samples_per_image, seed, progress).variances()


def collect_moments(
    estimators: Mapping[str, Estimator],
    model: SigmoidBeliefNet,
    images: Tensor,
    part: range,
    samples_per_image: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Moments:
    """The moments behind `measure`, for some of the images only; parts can be merged."""
    collectors = {name: _VarianceMoments(estimator, min(GROUPS, len(images))) for name, estimator in estimators.items()}
    run([*collectors.values()], model, images, part, samples_per_image, (seed, "variance"), progress)
    kinds = {name: collector.kinds for name, collector in collectors.items()}
    groups = {name: collector.over_images for name, collector in collectors.items()}
    return Moments(len(images), samples_per_image, kinds, groups)


class _VarianceMoments:
    """Collects the estimates of one estimator: first over the samples of a block of images, then over images."""

    def __init__(self, estimator: Estimator, groups: int) -> None:
        self.estimator = frozen(estimator)
        self.exact = isinstance(estimator, LikelihoodRatio)
        self.kinds = [WITHIN, *(EXACT if self.exact else [])]
        self.at_hand: dict[tuple[str, int], RunningMoments] = {}  # by what and layer; (B, H)
        self.over_images: Groups = [{} for _ in range(groups)]

    def add(self, draw: Draw) -> None:
        """Add the estimates for one draw."""
        answers = draw.gradients(self.estimator)
        images, paths = len(draw.block), self.estimator.samples
        for layer, gradient in enumerate(answers.by_mean):
            mean = gradient if paths == 1 else gradient.unflatten(0, (-1, paths)).mean(1)
            self._merge("answers", layer, RunningMoments.of(mean.unflatten(0, (images, -1)), 1))
            if self.exact:
                difference = draw.differences(self.estimator).by_mean[layer]
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
