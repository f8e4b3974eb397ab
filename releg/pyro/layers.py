"""A discrete site as one layer of variables, to which an estimator of `releg.functional` is applied."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from releg import functional
from releg.pyro import sites
from releg.pyro.rows import Rows
from releg.pyro.runs import Flip, Site

Settings = Mapping[str, Any]
DEFAULTS: Settings = {"estimator": "disarm", "flips": None, "samples": None}
ESTIMATORS = (  # that need no more than values of f
    *("common_random_numbers", "disarm", "leave_one_out"),
    *("arm", "arms", "bitflip", "likelihood_ratio", "pruned", "ugc"),
)


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
        site: recorded, with a draw.
        rows: of the run.
        f: (N,) of the recorded run.
        defaults: settings of the loss.
    """

    def __init__(self, name: str, site: Site, rows: Rows, f: Tensor, defaults: Settings) -> None:
        own = site.infer.get("releg", {})
        self.settings = {**(DEFAULTS if "estimator" in own else defaults), **own}
        self.estimator = estimator_of(f"site '{name}'", self.settings)
        assert site.draw is not None
        self.site, self.rows, self.f = site, rows, f
        self.batch_axes = len(site.distribution.batch_shape)
        self.states_axis = sites.has_states_axis(site.distribution)
        self.logits = rows.flatten(site.draw.logits, self.batch_axes, self.states_axis)
        self.z = rows.flatten(site.draw.z, self.batch_axes)
        self.seed = int(torch.randint(2**62, ()))
        self.asked = self._asked()

    @torch.no_grad()
    def _asked(self) -> list[Tensor]:
        asked: list[Tensor] = []

        def f(z: Tensor) -> Tensor:
            asked.append(z)
            return self.f

        self._estimate(f)
        constant = self.logits.detach()
        return [torch.where(sites.is_possible(constant, z, self.states_axis), z, self.z) for z in asked]

    def _estimate(self, f: Callable[[Tensor], Tensor]) -> functional.Answer:
        assert self.site.draw is not None
        generator = torch.Generator(self.logits.device).manual_seed(self.seed)
        options = {name: value for name, value in self.settings.items() if name != "estimator" and value is not None}
        noise = self.rows.flatten(self.site.draw.noise, self.batch_axes)
        parameters = inspect.signature(self.estimator).parameters
        if "samples" in parameters:  # the first of them is the recorded one
            others = int(options.get("samples", parameters["samples"].default)) - 1
            fresh = torch.rand(others, *noise.shape, generator=generator, dtype=noise.dtype, device=noise.device)
            noise = torch.cat([noise[None], fresh])
        if "flips" in options:
            states = self.logits.shape[-1] if self.states_axis else 2
            options["flips"] = min(options["flips"], self.z.shape[1] * (states - 1))
        return self.estimator(self.logits, f, noise=noise, generator=generator, **options)

    def flips(self) -> list[Flip]:
        """The values other than the recorded one for which f is needed."""
        shape = self.site.draw.z.shape if self.site.draw else torch.Size()
        others = [self.rows.unflatten(z, shape, self.batch_axes) for z in self.asked if not torch.equal(z, self.z)]
        return [Flip(self.site.order, sites.as_value(self.site.distribution, z)) for z in others]

    def surrogate(self, values: Iterator[Tensor]) -> Tensor:
        """Zero, whose gradient estimates that of minus the sum of E f by way of this layer's logits.

        Args:
            values: f of the flips, (N,) each, in their order.
        """
        known = iter([self.f if torch.equal(z, self.z) else next(values) for z in self.asked])
        answer = self._estimate(lambda z: next(known))
        return (answer.surrogate + answer.value).sum()
