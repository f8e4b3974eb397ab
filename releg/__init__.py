"""Low-variance gradients for discrete latent variables: the mathematics, without Lightning.

- your own model: `Layer`, `Node`, `Continuous`, `DiscreteModel`, `gradient`, or `functional` for one layer of logits;
- sigmoid belief nets: `SigmoidBeliefNet`, `load`, `save_model`, `bounds`, and every estimator by its class's name;
- `exact` is the oracle by enumeration.

Importing it needs torch alone; the engine that numba compiles is loaded when it is used.
"""

from importlib.metadata import PackageNotFoundError, version

from releg import bernoulli as bernoulli
from releg import bounds as bounds
from releg import categorical as categorical
from releg import discrete as discrete
from releg import exact as exact
from releg import functional as functional
from releg.discrete import Continuous as Continuous
from releg.discrete import DiscreteModel as DiscreteModel
from releg.discrete import Layer as Layer
from releg.discrete import Node as Node
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

try:
    __version__ = version("releg")
except PackageNotFoundError:  # run from a folder that was never installed
    __version__ = "unknown"
