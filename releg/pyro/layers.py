"""What an estimator of `releg.functional` needs of a recorded run: rows of f, and the discrete sites as layers of rows.

f = log p - log q. Rows are the plates within which a change of any discrete site stays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from math import prod
from typing import Any

import torch
from torch import Tensor

from releg import functional
from releg.pyro import sites
from releg.pyro.runs import DiscreteSite, Flip

Trace = Any  # pyro.poutine.Trace
Settings = Mapping[str, Any]
DEFAULTS: Settings = {"estimator": "disarm", "flips": None, "samples": None}
ESTIMATORS = (  # that need no more than values of f
    *("common_random_numbers", "disarm", "leave_one_out"),
    *("arm", "arms", "bitflip", "likelihood_ratio", "pruned", "ugc"),
)


@dataclass(frozen=True)
class Rows:
    """The rows of a program: all combinations of the plates that hold every site which a discrete site can affect.

    Without such plates there is one row.
    """

    names: frozenset[str]  # of discrete sites of the guide
    axes: tuple[int, ...]  # of the plates, on the batch axes, counted from the right
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return prod(self.sizes)

    def values(self, model: Trace, guide: Trace, side_by_side: bool = False) -> Tensor:
        """The sum of all terms that a discrete site can affect, (flips, N); a single run is one flip."""
        of_model, of_guide = affected(model, guide, self.names)
        terms = [self._by_row(site, side_by_side) for site in of_model]
        return torch.stack([*terms, *(-self._by_row(site, side_by_side) for site in of_guide)]).sum(0)

    def _by_row(self, site: Any, side_by_side: bool) -> Tensor:
        log_prob = site["log_prob"].detach() if side_by_side else site["log_prob"].detach()[None]
        batch = log_prob.dim() - 1
        if any(-a > batch for a in self.axes) or tuple(log_prob.shape[a] for a in self.axes) != self.sizes:
            raise ValueError(
                f"site '{site['name']}' has log-probabilities of shape {tuple(log_prob.shape[1:])}, expected rows of "
                f"sizes {self.sizes} on axes {self.axes}; put it into the plates of the guide's discrete sites"
            )
        others = [a for a in range(-batch, 0) if a not in self.axes]
        return (log_prob.sum(others) if others else log_prob).reshape(len(log_prob), len(self))

    def flatten(self, values: Tensor, batch_axes: int, states: bool = False) -> Tensor:
        """Values or logits of a discrete site, (batch, event), with rows first: (N, units) or (N, units, states)."""
        moved = values.movedim([batch_axes + a for a in self.axes], list(range(len(self.axes))))
        return moved.reshape(len(self), -1, *([values.shape[-1]] if states else []))

    def unflatten(self, z: Tensor, shape: torch.Size, batch_axes: int) -> Tensor:
        """The inverse of flatten for values."""
        at = [batch_axes + a for a in self.axes]
        others = [size for a, size in enumerate(shape) if a not in at]
        return z.reshape([*self.sizes, *others]).movedim(list(range(len(at))), at)


def samples(trace: Trace) -> list[Any]:
    """The sample sites."""
    return [site for site in trace.nodes.values() if site["type"] == "sample"]


def affected(model: Trace, guide: Trace, names: frozenset[str]) -> tuple[list[Any], list[Any]]:
    """The sites of the model and of the guide that can depend on those of the guide with these names."""
    of_guide = from_first(samples(guide), names)
    return from_first(samples(model), frozenset(site["name"] for site in of_guide)), of_guide


def from_first(sampled: list[Any], names: frozenset[str]) -> list[Any]:
    """What a program samples from the first of these names on: nothing before can depend on them."""
    return list(dropwhile(lambda site: site["name"] not in names, sampled))


def find_rows(model: Trace, guide: Trace, names: frozenset[str]) -> Rows:
    """The rows of a recorded run whose guide has discrete sites with these names."""
    of_model, of_guide = affected(model, guide, names)
    stacks = [site["cond_indep_stack"] for site in (*of_model, *of_guide)]
    plates = [{(frame.name, frame.dim) for frame in stack if frame.vectorized} for stack in stacks]
    axes = tuple(sorted(axis for _, axis in set.intersection(*plates)))
    return Rows(names, axes, tuple(of_guide[0]["log_prob"].shape[axis] for axis in axes))


def estimator_of(where: str, settings: Settings) -> Callable[..., functional.Answer]:
    """The estimator that the settings name; ValueError if they do not go together."""
    if unknown := set(settings) - set(DEFAULTS):
        raise ValueError(f"{where} has the settings {sorted(unknown)}, expected some of {sorted(DEFAULTS)}")
    name = settings["estimator"]
    if name not in ESTIMATORS:
        raise ValueError(f"{where} has the estimator '{name}', expected one of {', '.join(ESTIMATORS)}")
    estimator = getattr(functional, name)
    for option in ("flips", "samples"):
        if settings[option] is not None and option not in inspect.signature(estimator).parameters:
            raise ValueError(f"{where} has {option}={settings[option]}, which {name} does not take; leave it out")
    return estimator


class Layer:
    """N rows of a recorded discrete site.

    The estimator is called twice with the same random numbers: first to learn for which values it needs f, then, after
    the program was run with all of them, for the gradient.

    Args:
        name: of the site.
        site: as recorded.
        rows: of the run.
        f: (N,) of the recorded run.
        defaults: settings of the loss.
    """

    def __init__(self, name: str, site: DiscreteSite, rows: Rows, f: Tensor, defaults: Settings) -> None:
        own = site.infer.get("releg", {})
        settings = {**(DEFAULTS if "estimator" in own else defaults), **own}
        self.estimator = estimator_of(f"site '{name}'", settings)
        self.site, self.rows, self.f = site, rows, f
        self.batch_axes = len(site.distribution.batch_shape)
        self.logits = rows.flatten(site.logits, self.batch_axes, sites.has_states_axis(site.distribution))
        self.noise, self.z = (rows.flatten(each, self.batch_axes) for each in (site.noise, site.z))
        self.options = {name: settings[name] for name in ("flips", "samples") if settings[name] is not None}
        if "flips" in self.options:
            all_flips = self.logits[0].numel() - (self.z.shape[1] if self.logits.dim() > 2 else 0)
            self.options["flips"] = min(self.options["flips"], all_flips)
        self.seed = int(torch.randint(2**62, ()))
        asked: list[Tensor] = []  # the values for which f is needed
        with torch.no_grad():
            self._estimate(lambda z: asked.append(z) or f)  # type: ignore[func-returns-value]
            self.asked = [torch.where(sites.is_possible(self.logits, z), z, self.z) for z in asked]

    def _estimate(self, f: Callable[[Tensor], Tensor]) -> functional.Answer:
        generator = torch.Generator(self.logits.device).manual_seed(self.seed)
        return self.estimator(self.logits, f, noise=self.noise, generator=generator, **self.options)

    def flips(self, changed: Tensor | None = None) -> list[Flip]:
        """The values other than the recorded one for which f is needed; in some rows only, if these are given."""
        others = [z for z in self.asked if not torch.equal(z, self.z)]
        others = others if changed is None else [torch.where(changed[:, None], z, self.z) for z in others]
        values = [self.rows.unflatten(z, self.site.z.shape, self.batch_axes) for z in others]
        return [Flip(self.site.order, sites.as_value(self.site.distribution, value)) for value in values]

    def surrogate(self, values: Iterator[Tensor]) -> Tensor:
        """Zero, whose gradient estimates that of minus the sum of E f by way of this layer's logits.

        Args:
            values: f of the flips, (N,) each, in their order.
        """
        known = iter([self.f if torch.equal(z, self.z) else next(values) for z in self.asked])
        answer = self._estimate(lambda z: next(known))
        return (answer.surrogate + answer.value).sum()
