"""The measuring loop: images x spans of samples, at fixed weights. Collectors take the estimates, and keep moments.

Everything is computed in float64, whatever the model's type. Uniform numbers in float32 are multiples of 2^-24, so a
unit with mean 1e-15 would be on in one of 2^24 samples, and its likelihood ratio of 1e15 would count 6e7 times too
often; a unit with mean 1 - 1e-15 would never be off.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from releg import bernoulli
from releg.checks import check_at_least
from releg.estimators.base import Estimator, check_finite, repeated
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.parts.simulation import AlongPaths, Simulation, simulate
from releg.sbn import SigmoidBeliefNet
from releg.seeds import seed_for

PATHS_AT_ONCE = 500  # paths per call of an estimator; their arrays stay in the cache of an ordinary CPU
ANSWERS_PER_SEED = 100  # so the noise of an image depends neither on the other images nor on the size of a call
LARGEST_RESOLVED = -math.log(torch.finfo(torch.float64).tiny)  # of the logits whose mean (1 - mean) is not rounded to 0
Key = tuple[object, int]  # estimators with the same one have the same noise: see `_key`
Progress = Callable[[int], None]  # called with the number of images done since the last call


class PathGradients(NamedTuple):
    """The estimates along each path, (N, H) per layer, one row per path, in float64."""

    by_mean: list[Tensor]  # estimates of d elbo / d mean
    logits: list[Tensor]  # where they were made
    variances: list[Tensor]  # mean (1 - mean)
    z: list[Tensor]  # as they were simulated
    inputs: list[Tensor]  # (N, width) of each layer of the inference net


def path_gradients(
    estimator: Estimator,
    model: SigmoidBeliefNet,
    x: Tensor,
    noise: Sequence[Tensor],
    simulation: Simulation | None = None,
) -> PathGradients:
    """The estimates along each path, from checked input in float64; the paths may have been simulated already.

    Gradient of -surrogate w.r.t. each path's logits, times the paths per image, over mean (1 - mean). If a unit is so
    saturated that mean (1 - mean) underflows (|logit| > 708), its gradient cannot be resolved and counts as zero.
    """
    if simulation is None:
        with _recorded_inputs(model) as seen:
            answer = estimator.estimate(model, repeated(x, estimator.samples), noise)
        inputs = [seen[a.data_ptr()] for a in answer.logits]
    else:
        assert isinstance(estimator, AlongPaths)
        answer, inputs = estimator.along(model, simulation), simulation.path.layer_inputs()
    check_finite(model, answer.elbo)
    gradients = answer.logit_grads
    if gradients is None:
        by_logits = torch.autograd.grad(-answer.surrogate.sum(), answer.logits, materialize_grads=True)
        gradients = [g * estimator.samples for g in by_logits]  # the surrogate is the mean over an image's paths
    logits = [a.detach() for a in answer.logits]
    variances = [bernoulli.variance(a.clamp(-LARGEST_RESOLVED, LARGEST_RESOLVED)) for a in logits]
    by_mean = [g / v for g, v in zip(gradients, variances, strict=True)]
    z = [bernoulli.sample(a, u) for a, u in zip(logits, noise, strict=False)]
    return PathGradients(by_mean, logits, variances, z, inputs)


@contextmanager
def _recorded_inputs(model: SigmoidBeliefNet) -> Iterator[dict[int, Tensor]]:
    """The inputs of the layers of the inference net, by the addresses of their outputs."""
    seen: dict[int, Tensor] = {}
    outputs: list[Tensor] = []  # kept alive, so that no two have the same address

    def record(net: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[output.data_ptr()] = inputs[0].detach()
        outputs.append(output)

    handles = [net.register_forward_hook(record) for net in model.inference]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


class Collector(Protocol):
    """Takes the estimates of one estimator, block by block of images."""

    estimator: Estimator  # a float64 copy in evaluation mode, see `frozen`

    def add(self, draw: Draw) -> None:
        """Add the estimates of a span of samples for a block of images."""

    def finish(self, block: range) -> None:
        """Add these images, after all their samples were added."""


def run(
    collectors: Sequence[Collector],
    model: SigmoidBeliefNet,
    images: Tensor,
    part: range,
    samples: int,
    position: tuple[int, str],
    progress: Progress | None = None,
) -> None:
    """Estimate as often as asked for each image of the part; model and torch's global random state do not change.

    Args:
        collectors: get the estimates.
        model: the weights at which to measure.
        images: (I, data_size) of 0 and 1, any dtype.
        part: the numbers of the images to measure; the noise of an image depends on its number.
        samples: estimates per image.
        position: the seed, and what is measured: where the noise comes from.
        progress: called with the number of images done since the last call.
    """
    check_at_least("num_images", len(images), 2, "one has no variance; the paper has 50,000")
    check_at_least("samples_per_image", samples, 2, "one has no variance; the paper has 1,000")
    model = copy.deepcopy(model).eval().double()
    model.check_input(images[part.start : part.stop].to(model.mean))
    constant = copy.deepcopy(model).requires_grad_(False)
    estimators = [collector.estimator for collector in collectors]
    reference = next((e for e in estimators if _answers_differences(e)), CommonRandomNumbers().eval())
    answers = max(1, PATHS_AT_ONCE // max((e.samples for e in estimators), default=1))
    with torch.enable_grad():
        for block in _blocks(part, samples, answers):
            x = images[block.start : block.stop].to(model.mean)
            for span in _spans(samples, answers):
                draw = Draw(model, constant, reference, x, block, span, position)
                for collector in collectors:
                    collector.add(draw)
            for collector in collectors:
                collector.finish(block)
            if progress is not None:
                progress(len(block))


def frozen(estimator: Estimator) -> Estimator:
    """A float64 copy in evaluation mode, whose own parameters need no gradients."""
    return copy.deepcopy(estimator).eval().double().requires_grad_(False)


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
class Draw:
    """The noise for a span of samples of a block of images, and the estimates under this noise."""

    model: SigmoidBeliefNet
    constant: SigmoidBeliefNet  # the same without a graph, for estimators that need none
    reference: Estimator  # whose estimates are f1 - f0
    images: Tensor  # (B, data_size)
    block: range
    samples: range
    position: tuple[int, str]
    _noise: dict[Key, list[Tensor]] = field(default_factory=dict)
    _simulations: dict[Key, Simulation] = field(default_factory=dict)
    _differences: dict[Key, PathGradients] = field(default_factory=dict)

    def noise(self, estimator: Estimator) -> list[Tensor]:
        """The noise of the estimator for these rows, (N, H) per layer; shared by all that draw it the same way."""
        key = _key(estimator)
        if key not in self._noise:
            parts = [
                estimator.draw_noise(self.model, x.expand(count, -1), generator)
                for image, x in zip(self.block, self.images, strict=True)
                for count, generator in self._generators(image)
            ]
            self._noise[key] = [torch.cat(layer) for layer in zip(*parts, strict=True)]
        return self._noise[key]

    def _generators(self, image: int) -> Iterator[tuple[int, torch.Generator]]:
        """For the samples of one image, how many have the same seed, and their generator."""
        for first in range(self.samples.start, self.samples.stop, ANSWERS_PER_SEED):
            seed = seed_for(*self.position, image, first)
            generator = torch.Generator(self.images.device).manual_seed(seed)
            yield min(ANSWERS_PER_SEED, self.samples.stop - first), generator

    def _simulation(self, estimator: Estimator) -> Simulation:
        """The paths with the noise of the estimator; shared by all that draw it the same way."""
        key = _key(estimator)
        if key not in self._simulations:
            paths = len(self.samples) * estimator.samples  # of each image; their first logits are all the same
            first = repeated(self.constant.inference_logits(0, self.images), paths)
            self._simulations[key] = simulate(self.constant, repeated(self.images, paths), self.noise(estimator), first)
        return self._simulations[key]

    def gradients(self, estimator: Estimator) -> PathGradients:
        """The estimates of one estimator."""
        if estimator is self.reference:
            return self.differences(estimator)
        noise = self.noise(estimator)
        if not _is_along_paths(estimator):
            return path_gradients(estimator, self.model, repeated(self.images, len(self.samples)), noise)
        simulation = self._simulation(estimator)
        return path_gradients(estimator, self.constant, simulation.path.x[:: estimator.samples], noise, simulation)

    def differences(self, estimator: Estimator) -> PathGradients:
        """f1 - f0 of every unit along the estimator's paths, computed once for all with the same noise."""
        key = _key(estimator)
        if key not in self._differences:
            simulation, noise = self._simulation(estimator), self.noise(estimator)
            found = path_gradients(self.reference, self.constant, simulation.path.x, noise, simulation)
            self._differences[key] = found
        return self._differences[key]


def _key(estimator: Estimator) -> Key:
    """Who draws the noise, and paths per estimate; what a subclass draws may depend on its settings, so it has its own.

    Its seeds are the same in any case.
    """
    shared = type(estimator).draw_noise is Estimator.draw_noise
    return (Estimator.draw_noise if shared else id(estimator)), estimator.samples


def _is_along_paths(estimator: Estimator) -> bool:
    """Whether the estimator can be given simulated paths; not so if a subclass has its own `estimate`."""
    return type(estimator).estimate is AlongPaths.estimate
