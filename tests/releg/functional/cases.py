"""The unbiased estimators on plain logits, and their expectations over all noise."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from releg import bernoulli, functional
from releg.functional import Answer
from releg.functional.variables import sample
from tests.releg.discrete.choices import change_weights, choice_cells, plain_chances

Function = Callable[..., Answer]


@dataclass(frozen=True)
class Case:
    """An unbiased estimator, and what its noise looks like."""

    function: Function
    samples: int = 1
    opposite: bool = False  # whether 1 - noise is compared with the means
    is_categorical: bool = True
    flips: int = 0  # how many it chooses at random
    even: bool = False  # whether each with the same chance
    bound: bool = False  # whether it climbs the multi-sample bound


def learned_control() -> functional.SteinControl:
    made = functional.SteinControl(5, torch.Generator().manual_seed(0)).double()
    for number, parameter in enumerate(made.parameters()):
        parameter.data += 0.3 - 0.1 * number
    return made.eval()


CONTROL = learned_control()


def rodeo(logits: Tensor, *arguments: Any, **settings: Any) -> Answer:
    return functional.rodeo(logits, *arguments, **settings, control=deepcopy(CONTROL).to(logits.dtype))


CASES = {
    "likelihood_ratio": Case(functional.likelihood_ratio),
    "likelihood_ratio, baseline": Case(partial(functional.likelihood_ratio, baseline=1.7)),
    "leave_one_out": Case(functional.leave_one_out, samples=2),
    "leave_one_out, 3 samples": Case(partial(functional.leave_one_out, samples=3), samples=3),
    "common_random_numbers": Case(functional.common_random_numbers),
    "common_random_numbers, 1 flip": Case(partial(functional.common_random_numbers, flips=1), flips=1),
    "common_random_numbers, 3 flips": Case(partial(functional.common_random_numbers, flips=3), flips=3),
    "pruned": Case(functional.pruned, flips=1),
    "bitflip": Case(functional.bitflip, flips=1, even=True),
    "rodeo": Case(rodeo, samples=2),
    "rodeo, 3 samples": Case(partial(rodeo, samples=3), samples=3),
    "ugc": Case(functional.ugc, opposite=True, is_categorical=False, flips=1, even=True),
    "local_disarm": Case(functional.local_disarm, samples=2, opposite=True, is_categorical=False, bound=True),
    "arm": Case(functional.arm, opposite=True, is_categorical=False),
    "disarm": Case(functional.disarm, opposite=True),
}
LOGITS = {
    "bernoulli": torch.tensor([0.3, -1.2, 0.8], dtype=torch.float64),
    "saturated": torch.tensor([30.0, -30.0, 0.4], dtype=torch.float64),
    "categorical": torch.tensor([[0.3, -1.0, 0.6], [1.1, 0.2, -0.5]], dtype=torch.float64),
    "saturated categorical": torch.tensor([[30.0, -30.0, 0.0], [0.2, 0.0, 0.1]], dtype=torch.float64),
}


class Rugged:
    """f that jumps between states, and has a parameter; its slope by z is not that of its differences."""

    def __init__(self) -> None:
        self.slope = torch.tensor([0.4, -1.3, 0.7], dtype=torch.float64, requires_grad=True)

    def __call__(self, z: Tensor) -> Tensor:
        values = z.double() if z.dim() == 2 else z @ torch.arange(z.shape[-1], dtype=z.dtype)  # of one-hot vectors
        parity = values.sum(-1).long() % 2
        return 2.0 * parity + torch.sin((values + 1) @ self.slope[: z.shape[1]]) + (values[..., 0] * 1.6).round()


def exact_gradient(logits: Tensor, f: Callable[[Tensor], Tensor], bound: bool = False) -> tuple[Tensor, ...]:
    """Of sum_z q(z) f(z), by logits and the parameter of f, or of the bound with two samples instead."""
    is_binary = logits.dim() == 1
    states = 2 if is_binary else logits.shape[-1]
    z = torch.tensor(list(product(range(states), repeat=len(logits))))
    if is_binary:
        log_q = bernoulli.log_prob(logits, z.double()).sum(1)
    else:
        log_q = logits.log_softmax(-1).expand(len(z), -1, -1).gather(2, z[..., None]).sum((1, 2))
    value = f(z) if is_binary or isinstance(f, Rugged) else f(one_hot(z, states).double())
    expected = (log_q.exp() * value).sum()
    if bound:
        pairs = torch.logaddexp(value[:, None], value) - torch.tensor(2.0).log()
        expected = ((log_q[:, None] + log_q).exp() * pairs).sum()
    parameters = [logits, f.slope] if isinstance(f, Rugged) else [logits]
    return torch.autograd.grad(expected, parameters)


def unit_cells(logits: Tensor, opposite: bool) -> list[tuple[float, float]]:
    """(noise, width) of the cells of one unit."""
    if logits.dim() == 0:
        inner = [torch.sigmoid(logits), *([torch.sigmoid(-logits)] if opposite else [])]
    else:
        inner = list(logits.softmax(-1).flip(-1).cumsum(-1)[:-1])
    edges = [0.0, *sorted(float(edge) for edge in inner), 1.0]
    return [((low + high) / 2, high - low) for low, high in pairwise(edges)]


def noise_cells(logits: Tensor, case: Case) -> tuple[Tensor, Tensor]:
    """Noise (samples, C, units) of all combinations of cells, and their probabilities (C,)."""
    units = [unit_cells(unit, case.opposite) for unit in logits.detach()] * case.samples
    cells = torch.tensor(list(product(*units)), dtype=torch.float64)  # (C, samples * units, 2)
    noise = cells[..., 0].view(len(cells), case.samples, len(logits)).transpose(0, 1)
    return noise.clamp(max=1 - 2**-53), cells[..., 1].prod(1)


def expected_gradient(case: Case, base: Tensor, f: Rugged) -> tuple[Tensor, ...]:
    """Over all noise and, where flips are chosen, over all the ways to choose them."""
    noise, weights = noise_cells(base, case)
    logits, choice = base.expand(len(weights), *base.shape), {}
    if case.flips:
        z = sample(logits, noise[0])
        weights_of_flips = change_weights(logits.detach(), z)
        even = 1 - one_hot(z.long(), 2 if base.dim() == 1 else base.shape[-1]).flatten(1).double()
        points, widths = choice_cells(plain_chances(even if case.even else weights_of_flips, case.flips))
        cells = points.shape[1]
        noise, logits = noise.repeat_interleave(cells, dim=1), base.expand(widths.numel(), *base.shape)
        weights = (weights[:, None] * widths).flatten()
        choice = {"choice": points.flatten().clamp(max=1 - 2**-53)}
    answer = case.function(logits, f, noise if case.samples > 1 else noise[0], **choice)
    return torch.autograd.grad(-(weights * answer.surrogate).sum(), [base, f.slope])
