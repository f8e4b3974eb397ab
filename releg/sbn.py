"""The sigmoid belief network of the paper's experiments and its reverse-directional inference network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from releg import bernoulli
from releg.architecture import architecture_name
from releg.checks import check_at_least


@dataclass(frozen=True)
class Trajectory:
    """One simulation of the inference net: N rows, layers shallow first."""

    x: Tensor  # (N, data_size)
    centred: Tensor  # (N, data_size) x minus the training mean: the input of the inference net and the baselines
    noise: list[Tensor]  # (N, H) per layer, uniform
    logits: list[Tensor]  # (N, H) per layer, of q(z[l] | z[l-1]); part of the autograd graph
    z: list[Tensor]  # (N, H) per layer, binary

    def log_q_terms(self) -> list[Tensor]:
        """log q(z[0] | x), log q(z[1] | z[0]), ..., each (N,), from the stored logits."""
        return [bernoulli.log_prob(a, z).sum(-1) for a, z in zip(self.logits, self.z, strict=True)]

    def parents(self) -> list[Tensor]:
        """What each layer of z was sampled from: x, then every layer of z but the deepest."""
        return [self.x, *self.z[:-1]]

    def layer_inputs(self) -> list[Tensor]:
        """The inputs of the nets: like parents(), but x is centred."""
        return [self.centred, *self.z[:-1]]


class SigmoidBeliefNet(nn.Module):
    """A pair of nets over x and binary layers z[0] (next to x) ... z[-1] (deepest).

    Generative: p(z[-1]) p(z[-2] | z[-1]) ... p(x | z[0]), where the logits of the deepest layer are parameters.
    Inference: q(z[0] | x) q(z[1] | z[0]) ..., from shallow to deep. Every conditional is one sigmoid layer.

    Args:
        data_size: number of binary variables in x.
        layers: units per layer, shallow first: SBN(32-64-128-256) of the paper is [256, 128, 64, 32].
        mean: (data_size,) is subtracted from x before it enters the inference net; default: zeros.
    """

    mean: Tensor
    inference: Sequence[nn.Linear]  # [l] maps x or z[l-1] to the logits of z[l]
    generative: Sequence[nn.Linear]  # [l] maps z[l] to the logits of z[l-1] or x

    def __init__(self, data_size: int, layers: Sequence[int], mean: Tensor | None = None) -> None:
        super().__init__()
        _check_sizes(data_size, layers, mean)
        self.data_size = data_size
        self.layers = list(layers)
        widths = [data_size, *layers]
        pairs = list(pairwise(widths))
        inference = nn.ModuleList(nn.Linear(below, above) for below, above in pairs)
        generative = nn.ModuleList(nn.Linear(above, below) for below, above in pairs)
        self.inference = cast("Sequence[nn.Linear]", inference)  # torch types the members as plain modules
        self.generative = cast("Sequence[nn.Linear]", generative)
        self.prior_logits = nn.Parameter(torch.zeros(layers[-1]))
        mean = torch.zeros(data_size) if mean is None else mean
        self.register_buffer("mean", mean.detach().to(self.prior_logits.dtype, copy=True))
        self.reset_parameters()

    def __str__(self) -> str:
        return f"SBN({self.architecture})"

    @property
    def architecture(self) -> str:
        """Layer sizes as the paper writes them, deepest first: 32-64-128-256."""
        return architecture_name(self.layers)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Glorot-uniform weights, zero biases, zero prior logits."""
        for linear in self.linears():
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)
        nn.init.zeros_(self.prior_logits)

    def linears(self) -> Iterator[nn.Linear]:
        """All linear maps: those of the inference net, then those of the generative net, each shallow first."""
        yield from (*self.inference, *self.generative)

    def draw_noise(self, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Uniform noise for one path per row of x, one (N, H) array per layer."""
        return [
            torch.rand(len(x), size, generator=generator, dtype=self.mean.dtype, device=x.device)
            for size in self.layers
        ]

    def infer(self, x: Tensor, noise: Sequence[Tensor], first_logits: Tensor | None = None) -> Trajectory:
        """Sample z from the inference net with the given noise; first_logits are those of z[0], if they are known."""
        self.check_noise(x, noise)
        centred = x - self.mean
        z: list[Tensor] = []
        logits = [self.inference[0](centred) if first_logits is None else first_logits]
        for layer, layer_noise in enumerate(noise):
            if layer > 0:
                logits.append(self.inference[layer](z[-1]))
            z.append(bernoulli.sample(logits[-1], layer_noise))
        return Trajectory(x, centred, list(noise), logits, z)

    def inference_logits(self, layer: int, below: Tensor) -> Tensor:
        """Logits of q(z[layer] | below), where below is x for layer 0, else z[layer - 1]."""
        return self.inference[layer](below - self.mean if layer == 0 else below)

    def generative_logits(self, z: Sequence[Tensor]) -> list[Tensor]:
        """Logits of p(x | z[0]), p(z[0] | z[1]), ..., p(z[-1]): one more than there are layers."""
        conditional = [linear(above) for linear, above in zip(self.generative, z, strict=True)]
        return [*conditional, self.prior_logits.expand_as(z[-1])]

    def log_p_terms(self, x: Tensor, z: Sequence[Tensor]) -> list[Tensor]:
        """log p(x | z[0]), log p(z[0] | z[1]), ..., log p(z[-1]), each (N,)."""
        scored = zip(self.generative_logits(z), [x, *z], strict=True)
        return [bernoulli.log_prob(logits, value).sum(-1) for logits, value in scored]

    def log_p(self, x: Tensor, z: Sequence[Tensor]) -> Tensor:
        """log p(x, z), (N,)."""
        return bernoulli.total_log_prob(self.generative_logits(z), [x, *z])

    def log_q(self, x: Tensor, z: Sequence[Tensor]) -> Tensor:
        """log q(z | x), (N,), for any z."""
        below = [x, *z[:-1]]
        logits = [self.inference_logits(layer, value) for layer, value in enumerate(below)]
        return bernoulli.total_log_prob(logits, z)

    @torch.no_grad()
    def generate(
        self, count: int, noise: Sequence[Tensor] | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw images from p(x): (count, data_size) zeros and ones.

        Args:
            count: how many.
            noise: uniform, (count, H) per layer and then (count, data_size) for x; drawn if not given.
            generator: of the noise that is drawn here.
        """
        if noise is None:
            like = self.mean.expand(count, -1)
            x_noise = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
            noise = [*self.draw_noise(like, generator), x_noise]
        shapes = [tuple(values.shape) for values in noise]
        expected = [(count, size) for size in [*self.layers, self.data_size]]
        if shapes != expected:
            raise ValueError(f"noise has shapes {shapes}, expected {expected}; leave it out to have it drawn")
        return self.ancestral(noise[:-1], noise[-1])[0]

    @torch.no_grad()
    def reconstruct(
        self, x: Tensor, noise: Sequence[Tensor] | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """The means of p(x | z), (N, data_size), z being inferred from x with the noise given, or drawn here."""
        self.check_input(x)
        path = self.infer(x, self.draw_noise(x, generator) if noise is None else noise)
        return torch.sigmoid(self.generative_logits(path.z)[0])

    @torch.no_grad()
    def ancestral(self, noise: Sequence[Tensor], x_noise: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Ancestral sampling of (x, z) from noise (N, H) per layer and x_noise (N, data_size)."""
        z = [bernoulli.sample(self.prior_logits.expand_as(noise[-1]), noise[-1])]
        for layer in range(len(self.layers) - 1, 0, -1):
            z.insert(0, bernoulli.sample(self.generative[layer](z[0]), noise[layer - 1]))
        return bernoulli.sample(self.generative[0](z[0]), x_noise), z

    def check_input(self, x: Tensor) -> None:
        """Raise ValueError unless x is (N, data_size) and binary."""
        if x.dim() != 2 or x.shape[1] != self.data_size:
            raise ValueError(
                f"x has shape {tuple(x.shape)}, expected (N, {self.data_size}); flatten each image to one row"
            )
        if x.dtype != self.mean.dtype:
            raise ValueError(f"x is {x.dtype}, expected {self.mean.dtype} like the model; convert it with x.to(...)")
        if not bool(((x == 0) | (x == 1)).all()):
            raise ValueError("x has values other than 0 and 1, expected binary data; binarise the images first")

    def check_noise(self, x: Tensor, noise: Sequence[Tensor]) -> None:
        """Raise ValueError unless noise has one (N, H) array per layer for the N rows of x, of the type of x."""
        hint = "draw it with model.draw_noise(x)"
        if len(noise) != len(self.layers):
            raise ValueError(f"noise has {len(noise)} layers, expected {len(self.layers)}; {hint}")
        for layer, (layer_noise, size) in enumerate(zip(noise, self.layers, strict=True)):
            if layer_noise.shape != (len(x), size):
                raise ValueError(
                    f"noise[{layer}] has shape {tuple(layer_noise.shape)}, expected {(len(x), size)}; {hint}"
                )
            if layer_noise.dtype != x.dtype or layer_noise.device != x.device:
                raise ValueError(
                    f"noise[{layer}] is {layer_noise.dtype} on {layer_noise.device}, "
                    f"expected {x.dtype} on {x.device} like x; {hint}"
                )


def _check_sizes(data_size: int, layers: Sequence[int], mean: Tensor | None) -> None:
    check_at_least("data_size", data_size, 1, "give the number of pixels")
    if not layers or any(size < 1 for size in layers):
        raise ValueError(f"layers is {list(layers)}, expected one or more positive sizes, shallow first: [200, 200]")
    if mean is not None and mean.shape != (data_size,):
        raise ValueError(f"mean has shape {tuple(mean.shape)}, expected ({data_size},); give the mean of the rows of x")
