"""Moments that a measurement of gradient variances collects; moments of parts of the images can be merged."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from releg.files import replacing
from releg.measure.moments import Number, RunningMoments

WITHIN, EXACT = "within", ["exact_within", "optimal_within"]
# Moments over the images of each group, by layer (0 is next to x). A row is the mean estimate of each unit of a layer,
# followed by the layer's kinds of variance: (H + kinds,). A group without images yet has no layers.
Groups = list[dict[int, RunningMoments]]


@dataclass(frozen=True)
class GradientVariances:
    """The numbers of one estimator: for each layer, shallow first, by kind (within, between, ...)."""

    num_images: int
    samples_per_image: int
    layers: list[dict[str, Number]]


@dataclass(frozen=True)
class Collected:
    """Moments of all estimators. Image numbers decide the groups of the jackknife."""

    num_images: int  # of the whole measurement
    samples_per_image: int
    kinds: dict[str, list[str]]  # by estimator: the kinds of variance at the end of a row
    groups: dict[str, Groups]

    def merged(self, other: Collected) -> Collected:
        """Merged with another part of the same measurement."""
        groups = {
            name: [_merged(one, two) for one, two in zip(mine, other.groups[name], strict=True)]
            for name, mine in self.groups.items()
        }
        return Collected(self.num_images, self.samples_per_image, self.kinds, groups)

    def variances(self) -> dict[str, GradientVariances]:
        """The numbers of every estimator, once all images are in."""
        return {name: self._variances(name) for name in self.groups}

    def _variances(self, name: str) -> GradientVariances:
        groups = self.groups[name]
        layers = [self._numbers(self.kinds[name], [group[layer] for group in groups]) for layer in groups[0]]
        return GradientVariances(self.num_images, self.samples_per_image, layers)

    def _numbers(self, kinds: Sequence[str], parts: Sequence[RunningMoments]) -> dict[str, Number]:
        groups, count = RunningMoments.stacked(parts), range(len(parts))
        rests = [groups[[other for other in count if other != left]] for left in count]
        left_out = [self._summary(kinds, rest.pooled(0)) for rest in rests]
        return {
            kind: Number(value, torch.tensor([numbers[kind] for numbers in left_out], dtype=torch.float64))
            for kind, value in self._summary(kinds, groups.pooled(0)).items()
        }

    def _summary(self, kinds: Sequence[str], images: RunningMoments) -> dict[str, float]:
        units = len(images.mean) - len(kinds)
        numbers = dict(zip(kinds, images.mean[units:].tolist(), strict=True))
        within = numbers.pop(WITHIN)
        between = images.variance()[:units].mean().item() - within / self.samples_per_image
        return {WITHIN: within, "between": between, "total": within + between, **numbers}

    def save(self, path: Path) -> None:
        """Write it as plain tensors."""
        moments = {
            name: [{layer: (one.weight, one.mean, one.m2) for layer, one in group.items()} for group in groups]
            for name, groups in self.groups.items()
        }
        with replacing(path) as file:
            torch.save((self.num_images, self.samples_per_image, self.kinds, moments), file)

    @classmethod
    def load(cls, path: Path) -> Collected:
        """Read it; ValueError if the file is damaged."""
        try:
            with zipfile.ZipFile(path) as archive:  # torch writes checksums, but does not look at them
                if bad := archive.testzip():
                    raise ValueError(f"{bad} does not fit its checksum")
            num_images, samples, kinds, moments = torch.load(path, weights_only=True)
            groups = {
                name: [{layer: RunningMoments(*one) for layer, one in group.items()} for group in groups]
                for name, groups in moments.items()
            }
        except Exception as error:  # torch may raise almost anything
            raise ValueError(f"{path} is damaged ({type(error).__name__}), expected a part of a measurement") from error
        return cls(num_images, samples, kinds, groups)


def _merged(one: dict[int, RunningMoments], two: dict[int, RunningMoments]) -> dict[int, RunningMoments]:
    return {layer: two[layer].merged(one.get(layer)) if layer in two else one[layer] for layer in {**one, **two}}
