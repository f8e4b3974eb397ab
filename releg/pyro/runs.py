"""Runs of a guide and a model: one that is recorded, and others that repeat it with a discrete site changed.

Each messenger stands outside everything else, so that it sees distributions after all plates have broadcast them.
Noise is shared: what comes before the change keeps its values, what comes after is simulated with the recorded noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from pyro.poutine.broadcast_messenger import BroadcastMessenger
from pyro.poutine.indep_messenger import IndepMessenger
from pyro.poutine.messenger import Messenger
from torch import Tensor

from releg.pyro import sites


@dataclass(frozen=True)
class Site:
    """A site of the recorded guide, or a plate's choice of indices."""

    order: int
    distribution: Any
    infer: Mapping[str, Any]
    value: Tensor
    version: int  # of the value, which changes in place count up
    before: Tensor  # state of torch's random numbers before the value was drawn, and after it
    after: Tensor

    @property
    def is_plate(self) -> bool:
        """Whether the value is the indices of a plate."""
        return type(self.distribution).__name__ == "_Subsample"  # Pyro's own way to ask


@dataclass(frozen=True)
class DiscreteSite(Site):
    """A discrete site, and how it got its value: in the shape (batch, event), logits with states on a last axis."""

    logits: Tensor  # in the graph of the parameters
    noise: Tensor  # uniform
    z: Tensor  # states


def version(value: Tensor) -> int:
    """How often it was changed in place; inference tensors do not count it."""
    return 0 if value.is_inference() else value._version


class Recorder(Messenger):
    """Draws the discrete sites from uniform noise, and keeps what is needed to repeat the run."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: dict[str, Site] = {}

    @property
    def can_be_repeated(self) -> bool:
        """Whether runs can share the noise of all continuous sites, row by row."""
        on_cpu = all(site.value.device.type == "cpu" for site in self.sites.values())
        continuous = [s for s in self.sites.values() if not (s.is_plate or isinstance(s, DiscreteSite))]
        return on_cpu and all(sites.normal_within(site.distribution) for site in continuous)

    def _pyro_sample(self, msg: Any) -> None:
        if msg["value"] is not None:
            return
        distribution, before = msg["fn"], torch.get_rng_state()
        known = len(self.sites), distribution, msg["infer"]
        if sites.is_discrete(distribution):
            logits = sites.logits_of(distribution)
            shape = logits.shape[:-1] if sites.has_states_axis(distribution) else logits.shape
            noise = torch.rand(shape, dtype=logits.dtype, device=logits.device)
            noise = noise.clamp(min=torch.finfo(noise.dtype).eps / 2)  # so that 1 - noise, too, lies below 1
            z = sites.draw(distribution, logits.detach(), noise)
            value = sites.as_value(distribution, z)
            after = torch.get_rng_state()
            site: Site = DiscreteSite(*known, value, version(value), before, after, logits, noise, z)
        else:
            value = distribution(*msg["args"], **msg["kwargs"])
            site = Site(*known, value, version(value), before, torch.get_rng_state())
        self.sites[msg["name"]], msg["value"] = site, value


class Flip(NamedTuple):
    """Another value for the discrete site with that order; an order behind all sites changes nothing."""

    order: float
    value: Tensor


class Rerun(Messenger):
    """The recorded run with flips, side by side on a leftmost axis; a single flip needs no axis.

    Args:
        recorded: by name.
        flips: sorted by order.
        axis: where flips lie on the batch axes, counted from the right; None: there is one flip, and no axis.
    """

    def __init__(self, recorded: Mapping[str, Site], flips: Sequence[Flip], axis: int | None) -> None:
        super().__init__()
        self.recorded, self.flips, self.axis = recorded, flips, axis

    def _pyro_sample(self, msg: Any) -> None:
        site = self.recorded.get(msg["name"])
        if msg["value"] is not None or site is None:  # a flip can lead to sites that the recorded run does not have
            return
        msg["value"] = site.value if site.is_plate else self._value(site, msg)
        torch.set_rng_state(site.after)

    def _value(self, site: Site, msg: Any) -> Tensor:
        changed = sum(flip.order < site.order for flip in self.flips)
        here = [flip.value for flip in self.flips if flip.order == site.order]
        kept = [site.value] * (len(self.flips) - changed - len(here))
        if self.axis is None:
            return self._again(site, msg) if changed else [*here, *kept][0]
        values = [self._again(site, msg)[:changed]] if changed else []
        if here or kept:
            stacked = torch.stack([*here, *kept])
            ones = -self.axis - (stacked.dim() - msg["fn"].event_dim)  # plates around this site that it is not in
            values.append(stacked.reshape(len(stacked), *[1] * ones, *stacked.shape[1:]))
        return torch.cat(values)

    def _again(self, site: Site, msg: Any) -> Tensor:
        """The value that the recorded noise gives with the distribution of this run."""
        distribution = msg["fn"]
        if isinstance(site, DiscreteSite):
            z = sites.draw(distribution, sites.logits_of(distribution), site.noise)
            return sites.as_value(distribution, z)
        torch.set_rng_state(site.before)
        normal = sites.normal_within(site.distribution)
        if self.axis is None or normal is None:
            return distribution(*msg["args"], **msg["kwargs"])
        standard = torch.normal(torch.zeros_like(normal.loc), torch.ones_like(normal.loc))  # as Normal.rsample draws
        return sites.from_normal(distribution, standard)


class FlipPlate(IndepMessenger):
    """The axis of flips. pyro.plate would do the same and add a site with indices, to be confused with the user's."""

    def _process_message(self, msg: Any) -> None:
        super()._process_message(msg)
        BroadcastMessenger._pyro_sample(msg)
