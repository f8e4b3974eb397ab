"""`gradient`: Algorithm 1 of Tokui & Sato (2016) with all flips of a layer in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.discrete.chances import flip_chances, gradient_of_mean
from releg.discrete.flips import Flips, flips_of, simulate
from releg.discrete.footprint import Footprint
from releg.discrete.layers import Layer, Values
from releg.discrete.model import DiscreteModel, Sample, check_uniform
from releg.systematic_sampling import chosen

F = Callable[[Tensor, Values], Tensor]
CPU_MIB = 16  # the allocator returns larger arrays to the system each time, which costs more than batching
LISTED_BYTES = 64  # per listed flip: row, unit, state, masks, f and its change


@dataclass(frozen=True)
class Gradient:
    """The result of Algorithm 1 for N rows. Signs as in the estimators: maximise f, minimise the surrogate."""

    f: Tensor  # (N,) detached, at the sample
    surrogate: Tensor  # (N,) equals -f; its gradient is the estimate of the gradient of -E f for every parameter
    sample: Sample
    clamped_f: Values  # (N, units, states) per layer, (N, states) per node: f with a unit clamped; nan: not simulated
    logit_grads: Values  # like the logits, estimate of d E f / d logits


def gradient(
    model: DiscreteModel,
    f: F,
    x: Tensor,
    noise: Mapping[str, Tensor] | None = None,
    generator: torch.Generator | None = None,
    memory_mib: float = 256.0,
    flips: int | None = None,
    choice: Mapping[str, Tensor] | None = None,
) -> Gradient:
    """Delta_i = sum_k f_k grad q(z_i = k | parents), f_k simulated with z_i = k and the noise of the others.

    Equation 2 and Algorithm 1 of Tokui & Sato (2016); `releg.discrete.printed` has the latter as printed. Unbiased.
    Cost: f at the sample and at each of its flips, units * (states - 1) per layer, in batches; after a flip,
    only descendants with a changed parent are simulated. With `flips`, at most that many per row and layer.

    Args:
        model: q(z | x).
        f: (x, z by name of layer) -> (N,), row by row and finite for every z. The gradient w.r.t. parameters inside f
            is that at the sample. Where f contains -log q, detach that term: its own expected gradient is zero.
        x: (N, ...) inputs; repeat rows for several simulations of each.
        noise: `model.draw_noise(x)`; drawn if not given.
        generator: draws the noise and the choice if they are not given.
        memory_mib: bound on the memory of a batch of flips, in MiB: all tensors that are copied, listed or made by the
            layers and f. The sample with its graph, as for REINFORCE, and the result come on top. A batch has at
            least one flip. The result depends on this bound only by rounding.
        flips: how many flips to simulate per row and layer; None: all. They are chosen at random, in proportion to
            their part in the gradient of the logits, and reweighted: still unbiased, and cheaper.
        choice: (N,) uniform numbers per layer that choose the flips; drawn if not given.
    """
    _check_amounts(memory_mib, flips)
    noise = model.draw_noise(x, generator) if noise is None else noise
    with Footprint() as of_sample:
        sample = model.sample(x, noise)
    with Footprint() as of_f:
        value = evaluate(f, x, sample.z)
    mib = min(memory_mib, CPU_MIB) if x.device.type == "cpu" else memory_mib
    copied = _copied_bytes(x, noise, sample) + LISTED_BYTES * len(x)
    simulations = _Simulations(model, f, x, noise, sample, value.detach())
    clamped_f: Values = {}
    logit_grads: Values = {}
    surrogate = -value
    for layer in model.layers:
        chance = None if flips is None else flip_chances(*_wide(layer, sample), flips)
        wanted = None if chance is None else _choose(layer, x, chance, choice, generator)
        made = of_f.bytes + of_sample.bytes * bool(model.descendants[layer.name])  # by as many flips as x has rows
        at_once = max(1, int(mib * 2**20 * len(x) / (made + copied)))
        wide_f, differences = simulations.of_layer(layer, chance, wanted, at_once)
        logits = sample.logits[layer.name]
        clamped_f[layer.name] = layer.narrow(wide_f)
        logit_grads[layer.name] = delta = layer.narrow(gradient_of_mean(layer.widen(logits.detach()), differences))
        surrogate = surrogate - (delta * (logits - logits.detach())).flatten(1).sum(-1)  # adds zero
    return Gradient(value.detach(), surrogate, sample, clamped_f, logit_grads)


@dataclass(frozen=True)
class _Simulations:
    """The flips of every layer of one sample."""

    model: DiscreteModel
    f: F
    x: Tensor
    noise: Mapping[str, Tensor]
    sample: Sample
    value: Tensor  # (N,) f at the sample

    @torch.no_grad()
    def of_layer(
        self, layer: Layer, chance: Tensor | None, wanted: Tensor | None, at_once: int
    ) -> tuple[Tensor, Tensor]:
        """f_k of every unit and state, nan where not simulated, and (f_k - f) / chance: (N, units, states) each."""
        z = layer.widen(self.sample.z[layer.name])
        states = z.long()[..., None]
        shape = (*z.shape, layer.states)
        f_k = torch.full(shape, torch.nan, dtype=self.value.dtype, device=self.value.device)
        f_k.scatter_(2, states, self.value[:, None, None].expand(states.shape))
        differences = torch.zeros_like(f_k)
        for part in flips_of(layer, z, wanted, at_once):
            value = self._evaluate(layer, part)
            change = value - self.value[part.row]
            where = (part.row, part.unit, part.state)
            f_k[where] = value
            differences[where] = change if chance is None else change / chance[where].to(change.dtype)
        return f_k, differences

    def _evaluate(self, layer: Layer, flips: Flips) -> Tensor:
        x, z = simulate(self.model, layer, self.sample, self.x, self.noise, flips)
        return evaluate(self.f, x, z).to(self.value.dtype)


def evaluate(f: F, x: Tensor, z: Values) -> Tensor:
    """Checked f(x, z), (N,)."""
    return checked_f(f(x, z), len(x), lambda row: {name: values[row].tolist() for name, values in z.items()})


def checked_f(value: Tensor, rows: int, states: Callable[[int], object]) -> Tensor:
    """Return the value of f if it is one finite number per row; `states(row)` describes z for the error message."""
    if not isinstance(value, Tensor):
        raise TypeError(f"f gives a {type(value).__name__}, expected a tensor of shape ({rows},); use torch.as_tensor")
    if value.shape != (rows,):
        raise ValueError(f"f has shape {tuple(value.shape)}, expected ({rows},); sum over all axes but the first")
    if not bool(torch.isfinite(value).all()):
        row = int((~torch.isfinite(value)).nonzero()[0])
        raise FloatingPointError(
            f"f is {value[row].item()} at {states(row)}, expected finite numbers; all states of every unit are "
            "tried, also improbable ones: give the worst of them a finite value"
        )
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())


def _wide(layer: Layer, sample: Sample) -> tuple[Tensor, Tensor]:
    """Detached logits and values of a layer, with the axis of units."""
    return layer.widen(sample.logits[layer.name].detach()), layer.widen(sample.z[layer.name])


def _choose(
    layer: Layer,
    x: Tensor,
    chance: Tensor,
    choice: Mapping[str, Tensor] | None,
    generator: torch.Generator | None,
) -> Tensor:
    """The flips to simulate, (N, units, states)."""
    if choice is None:
        uniform = torch.rand(len(x), generator=generator, dtype=chance.dtype, device=x.device)
    else:
        uniform = choice[layer.name].to(chance.dtype)
        check_uniform(uniform, (len(x),), f"choice['{layer.name}']", "give one uniform number per row, or none at all")
    return chosen(chance.flatten(1), uniform[:, None]).view(chance.shape)


def _copied_bytes(x: Tensor, noise: Mapping[str, Tensor], sample: Sample) -> int:
    """Bytes that a batch of N flips copies from x, the noise and z; z counts twice, before and after."""
    arrays = [x, *noise.values(), *sample.z.values(), *sample.z.values()]
    return sum(array.numel() * array.element_size() for array in arrays)


def _check_amounts(memory_mib: float, flips: int | None) -> None:
    if memory_mib <= 0:
        raise ValueError(f"memory_mib is {memory_mib}, expected a positive number; the default is 256")
    if flips is not None and flips < 1:
        raise ValueError(f"flips is {flips}, expected at least 1; None simulates all flips")
