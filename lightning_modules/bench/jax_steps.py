"""The same training steps in JAX: the likelihood ratio with its baselines, and common random numbers.

Written as a user of JAX would: the loss as the paper reads, `jax.grad`, `jax.jit` around the whole step, and `lax.scan`
over a block of batches. All flips of a layer are simulated as one batch, as Algorithm 1 states it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.backend import clear_backends
from jax.nn import sigmoid
from torch import Tensor

LEARNING_RATE, SMOOTHING, EPSILON, WEIGHT_DECAY = 0.001, 0.99, 1e-8, 0.001  # those of releg's RMSprop
AVERAGE_DECAY = 0.8  # as in releg.baselines.RunningAverage

Layers = list[dict[str, Array]]
Params = dict[str, Any]  # layers of the nets "inference", "generative" and "baselines", and the prior's logits
Loss = Callable[[Params, Array, Array, Array, Sequence[Array]], tuple[Array, Array]]


class State(NamedTuple):
    """What a step changes."""

    params: Params
    squares: Params  # running averages of squared gradients
    averages: Array  # (layers,) LR's running averages
    key: Array


def use_threads(threads: int) -> None:
    """Start JAX again with that many threads; arrays and functions made before cannot be used any more.

    Measured: with 1, a step takes the same processor time whether the process may use one core or two.
    """
    os.environ["NPROC"] = str(threads)  # where XLA's client looks for the size of its pool
    clear_backends()
    jax.clear_caches()


def params_of(state: Mapping[str, Tensor]) -> Params:
    """The parameters of an SBNModule with the paper's LR or with CRN, from its state_dict."""
    plain, nets = {"w": "weight", "b": "bias"}, {"w": "0.weight", "b": "0.bias", "v": "2.weight", "c": "2.bias"}
    return {
        "prior": jnp.asarray(state["model.prior_logits"].numpy()),
        "inference": _layers(state, "model.inference", plain),
        "generative": _layers(state, "model.generative", plain),
        "baselines": _layers(state, "estimator.baselines.0.nets", nets),
    }


def _layers(state: Mapping[str, Tensor], prefix: str, names: Mapping[str, str]) -> Layers:
    layers: Layers = []
    while f"{prefix}.{len(layers)}.{names['w']}" in state:
        tensors = {short: state[f"{prefix}.{len(layers)}.{name}"] for short, name in names.items()}
        layers.append({short: jnp.asarray(tensor.numpy()) for short, tensor in tensors.items()})
    return layers


def linear(layer: Mapping[str, Array], below: Array) -> Array:
    """Logits of the units above, given those below."""
    return below @ layer["w"].T + layer["b"]


def softplus(logits: Array) -> Array:
    """log(1 + exp(logits)); on a CPU, `jax.nn.softplus` takes nine times as long."""
    return jnp.maximum(logits, 0) + jnp.log1p(jnp.exp(-jnp.abs(logits)))


def log_prob(logits: Array, z: Array) -> Array:
    """log Bernoulli(z; sigmoid(logits)), summed over units."""
    return (z * logits - softplus(logits)).sum(-1)


def simulate(nets: Layers, below: Array, noise: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Logits and samples of these layers of the inference net."""
    logits, samples = [], []
    for net, uniform in zip(nets, noise, strict=True):
        logits.append(linear(net, below))
        below = (uniform < sigmoid(logits[-1])).astype(below.dtype)
        samples.append(below)
    return logits, samples


def p_terms(params: Params, layer: int, below: Array, samples: Sequence[Array]) -> list[Array]:
    """log p of `below` given the sample of that layer, of this sample given the next, and so on to the prior."""
    logits = [linear(net, z) for net, z in zip(params["generative"][layer:], samples, strict=True)]
    return [log_prob(a, z) for a, z in zip([*logits, params["prior"]], [below, *samples], strict=True)]


def surrogate(p: Sequence[Array], logits: Sequence[Array], logit_grads: Sequence[Array]) -> Array:
    """A number whose gradient is the estimate, summed over the batch."""
    inner = [(lax.stop_gradient(g) * a).sum() for g, a in zip(logit_grads, logits, strict=True)]
    return -(sum(inner) + jnp.stack([term.sum() for term in p]).sum())


def lr_loss(params: Params, averages: Array, mean: Array, x: Array, noise: Sequence[Array]) -> tuple[Array, Array]:
    """The loss of the likelihood ratio with a baseline net and a running average per layer, and the new averages."""
    logits, samples = simulate(params["inference"], x - mean, noise)
    p = p_terms(params, 0, x, samples)
    q = [log_prob(a, z) for a, z in zip(logits, samples, strict=True)]
    logit_grads, squares, means = [], 0.0, []
    for layer, (net, below) in enumerate(zip(params["baselines"], [x - mean, *samples[:-1]], strict=True)):
        signal = lax.stop_gradient(sum(p[layer:]) - sum(q[layer:]))
        rest = signal - (jnp.tanh(linear(net, below)) @ net["v"].T + net["c"])[:, 0]
        remainder = rest - averages[layer]
        means.append(lax.stop_gradient(rest.mean()))
        squares += (remainder**2).sum()
        logit_grads.append(remainder[:, None] * (samples[layer] - sigmoid(logits[layer])))
    averages = AVERAGE_DECAY * averages + (1 - AVERAGE_DECAY) * jnp.stack(means)
    return surrogate(p, logits, logit_grads) + squares, averages


def crn_loss(params: Params, averages: Array, mean: Array, x: Array, noise: Sequence[Array]) -> tuple[Array, Array]:
    """The loss of common random numbers, which has no averages."""
    logits, samples = simulate(params["inference"], x - mean, noise)
    logit_grads = [
        differences(params, layer, below, logits[layer], samples[layer], noise) * sigmoid(a) * sigmoid(-a)
        for layer, (below, a) in enumerate(zip([x, *samples], logits, strict=False))
    ]
    return surrogate(p_terms(params, 0, x, samples), logits, logit_grads), averages


def differences(params: Params, layer: int, below: Array, logits: Array, z: Array, noise: Sequence[Array]) -> Array:
    """f1 - f0 of every unit of a layer, (B, H), with the same noise for both values."""
    sign = 1 - 2 * z
    nets = [params["generative"][layer], *params["inference"][layer + 1 : layer + 2]]
    moved = [linear(net, z)[:, None] + sign[..., None] * net["w"].T for net in nets]  # by one unit: (B, H, width)
    flipped = z[:, None] + sign[..., None] * jnp.eye(z.shape[1], dtype=z.dtype)  # (B, H, H)
    flips = signal(params, layer, below[:, None], logits[:, None], flipped, moved, [u[:, None] for u in noise])
    return sign * (flips - signal(params, layer, below, logits, z, [linear(net, z) for net in nets], noise)[:, None])


def signal(
    params: Params, layer: int, below: Array, logits: Array, z: Array, acted_on: Sequence[Array], noise: Sequence[Array]
) -> Array:
    """f_l at z, of which the logits of both neighbours are given: of the units below, and of the next layer if any."""
    terms = log_prob(acted_on[0], below) - log_prob(logits, z)
    if len(acted_on) == 1:
        return terms + log_prob(params["prior"], z)
    above = (noise[layer + 1] < sigmoid(acted_on[1])).astype(z.dtype)
    deeper_logits, deeper = simulate(params["inference"][layer + 2 :], above, noise[layer + 2 :])
    q = [log_prob(a, s) for a, s in zip([acted_on[1], *deeper_logits], [above, *deeper], strict=True)]
    return terms + sum(p_terms(params, layer + 1, z, [above, *deeper])) - sum(q)


LOSSES: dict[str, Loss] = {"lr": lr_loss, "crn": crn_loss}


def start(state: Mapping[str, Tensor], seed: int) -> State:
    """Before the first step."""
    params = params_of(state)
    squares = jax.tree.map(jnp.zeros_like, params)
    return State(params, squares, jnp.zeros(len(params["inference"]), params["prior"].dtype), jax.random.key(seed))


def update(params: Params, squares: Params, grads: Params) -> tuple[Params, Params]:
    """RMSprop, with decay on weight matrices."""
    grads = jax.tree.map(lambda g, p: g + WEIGHT_DECAY * p if p.ndim == 2 else g, grads, params)
    squares = jax.tree.map(lambda s, g: SMOOTHING * s + (1 - SMOOTHING) * g * g, squares, grads)
    steps = jax.tree.map(lambda g, s: LEARNING_RATE * g / (jnp.sqrt(s) + EPSILON), grads, squares)
    return jax.tree.map(jnp.subtract, params, steps), squares


def make_step(loss: Loss, mean: Tensor) -> Callable[[State, Array], tuple[State, Array]]:
    """A step on x (B, data_size), to be jitted or scanned: the new state, and the loss."""
    centre = jnp.asarray(mean.numpy())

    def step(state: State, x: Array) -> tuple[State, Array]:
        key, *keys = jax.random.split(state.key, 1 + len(state.averages))
        widths = [len(net["b"]) for net in state.params["inference"]]
        noise = [jax.random.uniform(k, (len(x), width), x.dtype) for k, width in zip(keys, widths, strict=True)]
        (value, averages), grads = jax.value_and_grad(loss, has_aux=True)(
            state.params, state.averages, centre, x, noise
        )
        return State(*update(state.params, state.squares, grads), averages, key), value

    return step
