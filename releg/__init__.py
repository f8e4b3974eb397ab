"""Low-variance gradients for discrete latent variables: the mathematics, without Lightning.

Names are loaded when they are used, so that `import releg` costs nothing:

- your own model: `Layer`, `Node`, `DiscreteModel`, `gradient`, or `functional` for one layer of plain logits;
- sigmoid belief nets: `SigmoidBeliefNet`, `load`, `save_model`, `bounds`, and every estimator by its class's name;
- `exact` is the oracle by enumeration.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # all that type checkers read; to them `X as X` means that X is public
    from releg import bernoulli as bernoulli
    from releg import bounds as bounds
    from releg import categorical as categorical
    from releg import discrete as discrete
    from releg import exact as exact
    from releg import functional as functional
    from releg.discrete import DiscreteModel as DiscreteModel
    from releg.discrete import Layer as Layer
    from releg.discrete import Node as Node
    from releg.discrete import bernoulli_node as bernoulli_node
    from releg.discrete import gradient as gradient
    from releg.estimators.arm import Arm as Arm
    from releg.estimators.arms import Arms as Arms
    from releg.estimators.base import Estimate as Estimate
    from releg.estimators.base import Estimator as Estimator
    from releg.estimators.bitflip import Bitflip as Bitflip
    from releg.estimators.common_random_numbers import CommonRandomNumbers as CommonRandomNumbers
    from releg.estimators.disarm import DisArm as DisArm
    from releg.estimators.double_control import DoubleControl as DoubleControl
    from releg.estimators.gumbel_softmax import GumbelSoftmax as GumbelSoftmax
    from releg.estimators.leave_one_out import LeaveOneOut as LeaveOneOut
    from releg.estimators.likelihood_ratio import LikelihoodRatio as LikelihoodRatio
    from releg.estimators.local_disarm import LocalDisArm as LocalDisArm
    from releg.estimators.local_expectation import LocalExpectation as LocalExpectation
    from releg.estimators.mu_prop import MuProp as MuProp
    from releg.estimators.optimal_baseline import OptimalBaseline as OptimalBaseline
    from releg.estimators.pruned import Pruned as Pruned
    from releg.estimators.rebar import Rebar as Rebar
    from releg.estimators.reinmax import ReinMax as ReinMax
    from releg.estimators.relax import Relax as Relax
    from releg.estimators.rodeo import Rodeo as Rodeo
    from releg.estimators.straight_through import StraightThrough as StraightThrough
    from releg.estimators.ugc import Ugc as Ugc
    from releg.estimators.vimco import Vimco as Vimco
    from releg.sbn import SigmoidBeliefNet as SigmoidBeliefNet
    from releg.weights import load as load
    from releg.weights import save_model as save_model

    __version__: str
    __all__: list[str]

_MODULES = ("bernoulli", "bounds", "categorical", "discrete", "exact", "functional")
_HOMES = {  # of names that are not estimators
    **dict.fromkeys(("DiscreteModel", "Layer", "Node", "bernoulli_node", "gradient"), "discrete"),
    **dict.fromkeys(("Estimate", "Estimator"), "estimators.base"),
    **dict.fromkeys(("load", "save_model"), "weights"),
    "SigmoidBeliefNet": "sbn",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used; the package keeps it."""
    if name == "__all__":
        value: Any = sorted({"__version__", *_MODULES, *_HOMES, *_estimators()})
    elif name == "__version__":
        value = _version()
    elif name in _MODULES:
        value = import_module(f"releg.{name}")
    elif home := _HOMES.get(name) or _estimators().get(name):
        value = getattr(import_module(f"releg.{home}"), name)
    else:
        known = ", ".join(__getattr__("__all__"))
        raise AttributeError(f"module 'releg' has no attribute '{name}', expected one of {known}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted({*globals(), *__getattr__("__all__")})


@cache
def _estimators() -> dict[str, str]:
    """Where each estimator is. Its file has the name of its class: local_disarm.py that of LocalDisArm."""
    from pathlib import Path

    homes = {}
    for path in (Path(__file__).parent / "estimators").glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name = line.removeprefix("class ").partition("(")[0]
            if line.startswith("class ") and name.lower() == path.stem.replace("_", ""):
                homes[name] = f"estimators.{path.stem}"
    return homes


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("releg")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "unknown"
