"""`gradient`: any estimator of one layer, layer by layer; by default Algorithm 1 of Tokui & Sato (2016)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, cast

import torch
from torch import Tensor

from releg import functional
from releg.discrete.flips import flipped_changes
from releg.discrete.functions import ONE_HOT, F, LayerFunction, check_rows, evaluate
from releg.discrete.layers import Values
from releg.discrete.memory_use import MemoryUse
from releg.discrete.model import DiscreteModel, Draw, Sample
from releg.functional.flip_probabilities import choose, flip_probabilities, gradient_of_mean
from releg.functional.relaxed import RELAXED
from releg.functional.variables import NO_SLOPE, Answer, check_flips, check_graph, zero_with_gradient

Estimator = Callable[..., Answer]  # of releg.functional, or one that is called like them
CPU_MIB = 16  # the allocator returns larger arrays to the system each time, which costs more than batching
LISTED_BYTES = 64  # per listed flip: row, unit, state, masks, f and its change


@dataclass(frozen=True)
class Gradient:
    """The estimate for N rows. Signs as in the estimators: maximise f, minimise the surrogate."""

    f: Tensor  # (N,) detached, at the sample
    surrogate: Tensor  # (N,) equals -f; its gradient is the estimate of the gradient of -E f for every parameter
    sample: Sample
    logit_grads: Values  # like the logits, estimate of d E f / d logits; none for layers that are relaxed


def gradient(
    model: DiscreteModel,
    f: F,
    x: Tensor,
    noise: Mapping[str, Tensor] | None = None,
    generator: torch.Generator | None = None,
    memory_mib: float = 256.0,
    flips: int | None = None,
    *,
    estimator: Estimator | str | Mapping[str, Estimator | str] = functional.common_random_numbers,
    shared_noise: bool = True,
    check: bool = True,
    **options: Any,
) -> Gradient:
    """Estimate the gradient of E f(x, z) for all parameters, layer by layer.

    By default Delta_i = sum_k f_k grad q(z_i = k | parents), f_k simulated with z_i = k and the noise of the others:
    equation 2 and Algorithm 1 of Tokui & Sato (2016). Unbiased. Cost: f at the sample and at each of its flips,
    units * (states - 1) per layer, in batches; after a flip, its descendants are simulated. With `flips`, at most that
    many per row and layer.

    Any other estimator of `releg.functional` is applied to each layer's logits and to f as a function of this layer,
    with what follows simulated from it: unbiased if the function is. Its cost is that of the function per layer. The
    samples of one layer have the same parents, so leave_one_out with shared_noise=False is the published hierarchical
    ("sibling") form. The biased ones draw z with a derivative, which goes through f and through the layers after it.

    Args:
        model: q(z | x).
        f: (x, z by name of layer) -> (N,), row by row and finite for every z. The gradient w.r.t. parameters inside f
            is that at the sample. Where f contains -log q of discrete layers, detach that term: its own expected
            gradient is zero.
        x: (N, ...) inputs; repeat rows for several simulations of each.
        noise: `model.draw_noise(x)`; drawn if not given.
        generator: draws the noise if it is not given, the choice of flips, and what else an estimator needs.
        memory_mib: bound on the memory of a batch of flips, in MiB: all tensors that are copied, listed or made by the
            layers and f. The sample with its graph, as for REINFORCE, and the result come on top. A batch has at
            least one flip. The result depends on this bound only by rounding.
        flips: how many flips to simulate per row and layer; None: all. They are chosen at random, in proportion to
            their part in the gradient of the logits, and reweighted: still unbiased, and cheaper.
        estimator: a function of `releg.functional` or its name, for all layers; or one for each by the layer's name,
            common random numbers for those that are not named.
        shared_noise: simulate what follows a layer with the noise of the sample, as common random numbers always do. It
            usually varies less than new noise, and both are unbiased.
        check: once per model, call f and the layers with some rows repeated; an error if this changes the others, or if
            a call changed x. They may change z in place.
        options: further arguments, such as samples=4, for all estimators that take them; give functools.partial for
            those of one layer, which come first.
    """
    if memory_mib <= 0:
        raise ValueError(f"memory_mib is {memory_mib}, expected a positive number; the default is 256")
    estimators = _by_layer(model, estimator, options if flips is None else {"flips": flips, **options})
    noise = model.draw_noise(x, generator) if noise is None else noise
    before = x if model.is_checked else x.clone()
    relaxed = _relaxed(model, estimators, generator)
    with MemoryUse() as of_sample:
        sample = model.sample(x, noise, relaxed)
    with MemoryUse() as of_f:
        value = evaluate(f, x, sample.z)
    if relaxed and torch.is_grad_enabled() and not value.requires_grad:
        raise ValueError(NO_SLOPE)
    check_graph(value, list(sample.logits.values()))
    if check and not model.is_checked:
        check_rows(model, f, x, before, sample, value)
        model.is_checked = True
    logit_grads: Values = {}
    surrogate = -value
    for layer in (layer for layer in model.discrete if layer.name not in relaxed):
        function = estimators[layer.name]
        f_l = LayerFunction(model, f, x, noise, sample, value.detach(), layer, shared_noise, generator)
        if function.func is functional.common_random_numbers:
            simulated = of_f.bytes + of_sample.bytes * bool(model.descendants[layer.name])
            delta = _flip_gradient(f_l, _batch(f_l, memory_mib, simulated), **function.keywords)
        else:
            delta, own = _layer_gradient(function, f_l)
            surrogate = surrogate + own
        logit_grads[layer.name] = layer.narrow(delta)
        surrogate = surrogate - zero_with_gradient(sample.logits[layer.name], logit_grads[layer.name])
    return Gradient(value.detach(), surrogate, sample, logit_grads)


def _by_layer(
    model: DiscreteModel, estimator: Estimator | str | Mapping[str, Estimator | str], options: Mapping[str, Any]
) -> dict[str, partial[Answer]]:
    """The estimator of every discrete layer, with those of the options that it takes."""
    names = [layer.name for layer in model.discrete]
    by_layer = dict(estimator) if isinstance(estimator, Mapping) else dict.fromkeys(names, estimator)
    if not by_layer.keys() <= set(names):
        raise ValueError(f"estimator is for {sorted(by_layer)}, expected names of discrete layers, {names}; correct it")
    found, unknown = {}, set(options)
    for name in names:
        function = partial(_named(by_layer.get(name, functional.common_random_numbers)))
        taken = options.keys() & signature(function.func).parameters.keys() - {"one_hot"}  # which is the layer's
        found[name] = partial(function, **{option: options[option] for option in taken - function.keywords.keys()})
        unknown -= taken
    if unknown:
        functions = ", ".join(sorted({function.func.__name__ for function in found.values()}))
        raise ValueError(f"{functions} has no argument {sorted(unknown)} here, expected one of its docstring")
    return found


def _named(estimator: Estimator | str) -> Estimator:
    """The function of that name, or the given one."""
    if isinstance(estimator, str):
        if estimator not in functional.__all__:
            raise ValueError(f"estimator is '{estimator}', expected one of {', '.join(functional.__all__)}")
        estimator = cast(Estimator, getattr(functional, estimator))
    if estimator is functional.local_disarm:
        raise ValueError("local_disarm climbs the multi-sample bound of one layer, expected an estimator of E f")
    return estimator


def _relaxed(
    model: DiscreteModel, estimators: Mapping[str, partial[Answer]], generator: torch.Generator | None
) -> dict[str, Draw]:
    """How to draw the layers whose estimators differentiate f."""
    relaxed: dict[str, Draw] = {}
    for layer in model.discrete:
        function = estimators[layer.name]
        if function.func in RELAXED:
            if not (layer.is_binary or layer.one_hot):
                raise ValueError(ONE_HOT.format(layer=layer))
            relaxed[layer.name] = partial(_drawn, function, generator)
    return relaxed


def _drawn(function: partial[Answer], generator: torch.Generator | None, logits: Tensor, noise: Tensor) -> Tensor:
    """The z at which an estimator differentiates f, with the derivative by the logits that it gives z."""
    seen: list[Tensor] = []

    def f(z: Tensor) -> Tensor:
        seen.append(z)
        return z.flatten(1).sum(1)

    function(logits, f, noise, generator)
    return seen[-1]


def _flip_gradient(f_l: LayerFunction, batch: int, flips: int | None = None, choice: Tensor | None = None) -> Tensor:
    """The gradient of common random numbers by one layer's logits, from batches of flips."""
    layer = f_l.layer
    check_flips(flips, max(other.units * (other.states - 1) for other in f_l.model.discrete))
    logits, z = layer.widen(f_l.sample.logits[layer.name].detach()), layer.read(f_l.sample.z[layer.name])
    probabilities = None if flips is None else flip_probabilities(logits, z, flips)
    wanted, weight = choose(logits, z, probabilities, choice, f_l.generator)
    changes = flipped_changes(f_l, wanted, batch)
    return gradient_of_mean(logits, torch.where(wanted, changes * weight.to(changes.dtype), 0))


def _layer_gradient(function: partial[Answer], f_l: LayerFunction) -> tuple[Tensor, Tensor]:
    """An estimator's gradient by the logits of one layer, and zeros (N,) with the gradient of its own parameters."""
    layer = f_l.layer
    with torch.enable_grad():
        leaf = layer.widen(f_l.sample.logits[layer.name].detach()).requires_grad_()
        noise = layer.widen(f_l.noise[layer.name])
        _, surrogate = function(leaf, f_l, noise, f_l.generator)
        (grad,) = torch.autograd.grad(surrogate.sum(), leaf, retain_graph=True)
        return -grad, surrogate - surrogate.detach()


def _batch(f_l: LayerFunction, memory_mib: float, simulated: float) -> int:
    """How many flips fit into the memory, at least one, if simulating all rows takes so many bytes.

    Besides, N flips are listed, and copied from x, the noise and z; z counts twice, before and after.
    """
    arrays = [f_l.x, *f_l.noise.values(), *f_l.sample.z.values(), *f_l.sample.z.values()]
    copied = sum(array.numel() * array.element_size() for array in arrays)
    mib = min(memory_mib, CPU_MIB) if f_l.x.device.type == "cpu" else memory_mib
    return max(1, int(mib * 2**20 / (LISTED_BYTES + (simulated + copied) / len(f_l.x))))
