"""The loss: log p - log q along one recorded run, and for each discrete site an estimator of `releg.functional`.

Given what comes before it, a discrete site is one layer of variables, whose function f_l(z_l) is f after the rest of
the program has run again from z_l. The estimators are those of one layer, applied site by site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pyro import infer, poutine
from pyro.infer.enum import get_importance_trace
from pyro.infer.util import torch_backward
from torch import Tensor

from releg.pyro.layers import Layer, Rows, Trace, estimator_of, find_rows, samples
from releg.pyro.runs import DiscreteSite, Flip, FlipPlate, Recorder, Rerun, Site, version

Run = Callable[..., tuple[Trace, Trace]]  # of the guide and the model within a messenger, to their traces


class ELBO(infer.ELBO):
    """The evidence lower bound, with low-variance gradients for Bernoulli, Categorical and OneHotCategorical sites.

    Every discrete site of the guide is set to other values, and what follows it is run again with the same noise and
    without a graph. Unbiased, if plates hold what is independent and all randomness is in sample statements.
    `infer={"releg": {"estimator": ..., "flips": ..., "samples": ...}}` overrides the settings at a site of the guide.

    Args:
        estimator: a function of `releg.functional` by name: common_random_numbers, disarm, leave_one_out, arm, arms,
            bitflip, likelihood_ratio, pruned or ugc.
        flips: of common_random_numbers and pruned: how many flips per row and site; None: all, or one for pruned.
        samples: of leave_one_out and arms: draws of each site.
        vectorize: run many flips at once, in a plate on the left of all others; if not, one by one, for programs that
            do not broadcast. At once, continuous sites other than Normal and its transforms are drawn anew after a
            flip, which is unbiased but has more variance.
        num_particles: average over this many runs.
        max_plate_nesting: how many plates are nested; found in each run if not given.
        flips_at_once: the largest size of the plate of flips, which bounds the memory.
    """

    def __init__(
        self,
        estimator: str = "disarm",
        flips: int | None = None,
        samples: int | None = None,
        vectorize: bool = True,
        num_particles: int = 1,
        max_plate_nesting: float = float("inf"),
        flips_at_once: int = 16,
    ) -> None:
        super().__init__(num_particles=num_particles, max_plate_nesting=max_plate_nesting)
        self.settings = {"estimator": estimator, "flips": flips, "samples": samples}
        estimator_of("the loss", self.settings)
        self.vectorize, self.flips_at_once = vectorize, flips_at_once if vectorize else 1
        self._repeatable = False  # whether a flip left f of other rows as it was; asked in the first step

    def loss(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> float:
        """Minus the estimated bound."""
        with torch.no_grad():
            return self.differentiable_loss(model, guide, *args, **kwargs).item()

    def loss_and_grads(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> float:
        """Minus the estimated bound; adds the estimate of its gradient to every parameter's .grad."""
        loss = self.differentiable_loss(model, guide, *args, **kwargs)
        torch_backward(loss)
        return loss.item()

    def differentiable_loss(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> Tensor:
        """Minus the estimated bound, whose backward pass gives the estimate of its gradient."""
        if isinstance(poutine.unwrap(guide), poutine.messenger.Messenger):
            raise ValueError(f"the guide is a {type(poutine.unwrap(guide)).__name__}, expected a function or a module")

        def run(messenger: Any, wrapper: Callable = lambda program: program) -> tuple[Trace, Trace]:
            with messenger:
                return self._get_trace(wrapper(model), wrapper(guide), args, kwargs)

        return torch.stack([self._particle(run) for _ in range(self.num_particles)]).mean()

    def _get_trace(self, model: Callable, guide: Callable, args: Any, kwargs: Any) -> tuple[Trace, Trace]:
        return get_importance_trace("flat", float("inf"), model, guide, args, kwargs)

    def _particle(self, run: Run) -> Tensor:
        start, recorder = torch.get_rng_state(), Recorder()
        model, guide = run(recorder)
        check_sites(model, guide, recorder.sites)
        loss = minus_bound(model, guide, recorder.sites)
        discrete = {name: site for name, site in recorder.sites.items() if isinstance(site, DiscreteSite)}
        discrete = {name: site for name, site in discrete.items() if site.logits.requires_grad}
        if not discrete:
            return loss
        rows = find_rows(model, guide, frozenset(discrete))
        (f,) = rows.values(model, guide)
        layers = [Layer(name, site, rows, f, self.settings) for name, site in discrete.items()]
        axis = -self._nesting(model, guide) - 1 if self.vectorize else None
        end = torch.get_rng_state()

        @torch.no_grad()
        def simulate(flips: Sequence[Flip]) -> Tensor:
            torch.set_rng_state(start)
            return rerun(run, Rerun(recorder.sites, flips, axis), rows)

        flips = [flip for layer in layers for flip in layer.flips()]
        if flips and not self._repeatable:
            kept = torch.arange(len(f), device=f.device) % 2 == 0
            half = next(flip for layer in layers for flip in layer.flips(~kept))
            if not recorder.can_be_repeated:  # new noise changes f in all rows: change nothing
                kept, half = torch.ones_like(kept), Flip(float("inf"), half.value)
            check_repeated(f[kept], simulate([flips[0], half][-self.flips_at_once :])[-1][kept])
            self._repeatable = True
        batches = [flips[i : i + self.flips_at_once] for i in range(0, len(flips), self.flips_at_once)]
        values = (value for batch in batches for value in simulate(batch))
        surrogates = [layer.surrogate(values) for layer in layers]
        torch.set_rng_state(end)
        return loss + torch.stack(surrogates).sum()

    def _nesting(self, *traces: Trace) -> int:
        """The number of batch axes to the right of the flips."""
        found = [site["log_prob"].dim() for trace in traces for site in samples(trace)]
        return max(found) if self.max_plate_nesting == float("inf") else max(*found, int(self.max_plate_nesting))


def rerun(run: Run, messenger: Rerun, rows: Rows) -> Tensor:
    """f of every flip, (flips, N)."""
    if messenger.axis is None:
        return rows.values(*run(messenger))
    count = len(messenger.flips)
    try:
        return rows.values(*run(messenger, FlipPlate("_releg_flips", count, messenger.axis)), side_by_side=True)
    except (ValueError, RuntimeError, IndexError) as error:
        raise ValueError(
            f"the program fails with {count} flips in a plate on the left of all others, expected one that broadcasts; "
            f"set vectorize=False to run flips one by one. It said: {error}"
        ) from error


def minus_bound(model: Trace, guide: Trace, recorded: Mapping[str, Site]) -> Tensor:
    """log q - log p. The log q of discrete sites is detached: its own expected gradient is zero."""
    terms = [-site["log_prob_sum"] for site in samples(model)]
    for site in samples(guide):
        is_discrete = isinstance(recorded.get(site["name"]), DiscreteSite)
        terms.append(site["log_prob_sum"].detach() if is_discrete else site["log_prob_sum"])
    return torch.stack(terms).sum()


def check_sites(model: Trace, guide: Trace, recorded: Mapping[str, Site]) -> None:
    """Raise ValueError if there is a site whose gradient would be wrong."""
    for site in samples(model):
        if not site["is_observed"] and site["name"] not in guide.nodes:
            raise ValueError(
                f"site '{site['name']}' of the model is neither observed nor in the guide, expected one; add it to "
                "the guide, or use TraceEnum_ELBO to sum it out"
            )
    for name, known in recorded.items():
        if version(known.value) != known.version:
            raise ValueError(
                f"the program changes the value of site '{name}' in place, expected one that leaves it alone, since "
                "its log-probability is of another value then; write z = 2 * z - 1 instead of z.mul_(2).sub_(1), or "
                "begin with z = z.clone()"
            )
        if not (isinstance(known, DiscreteSite) or known.is_plate or known.distribution.has_rsample):
            raise ValueError(
                f"site '{name}' of the guide is a {type(known.distribution).__name__}, expected a Bernoulli, "
                "Categorical, OneHotCategorical or a reparameterised distribution; there is no estimator for others"
            )


def check_repeated(f: Tensor, again: Tensor) -> None:
    """Raise ValueError unless rows without a flip have the recorded f."""
    if not torch.allclose(f, again, rtol=1e-4, atol=1e-4 * float(f.abs().mean())):
        raise ValueError(
            "running the program again changes f also in rows in which nothing was changed; if it mixes rows of a "
            "leftmost axis (sum(0), view, cat or indexing on the first axis), set vectorize=False; if rows of a plate "
            "depend on each other (BatchNorm, a mean over rows), take it away; if it draws random numbers "
            "outside of sample statements, or changes its parameters or buffers, no estimate is unbiased"
        )
