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
from releg.pyro.runs import DiscreteSite, Flip

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

    def flips(self) -> list[Flip]:
        """The values other than the recorded one for which f is needed."""
        others = [z for z in self.asked if not torch.equal(z, self.z)]
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
