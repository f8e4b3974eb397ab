"""The list of estimators that the tests of the contract, of unbiasedness and of identities run over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from releg import bernoulli
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.arm import Arm
from releg.estimators.arms import Arms
from releg.estimators.base import Estimator
from releg.estimators.bitflip import Bitflip
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.disarm import DisArm
from releg.estimators.double_control import DoubleControl
from releg.estimators.gumbel_softmax import GumbelSoftmax
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.local_disarm import LocalDisArm
from releg.estimators.local_expectation import LocalExpectation
from releg.estimators.mu_prop import MuProp
from releg.estimators.optimal_baseline import OptimalBaseline
from releg.estimators.pruned import Pruned
from releg.estimators.rebar import Rebar
from releg.estimators.reinmax import ReinMax
from releg.estimators.relax import Relax
from releg.estimators.rodeo import Rodeo
from releg.estimators.straight_through import StraightThrough
from releg.estimators.ugc import Ugc
from releg.estimators.vimco import Vimco
from releg.systematic_sampling import proportional


def no_extra_noise(depth: int) -> Sequence[int]:
    return ()


def noise_below_opposites(depth: int) -> Sequence[int]:
    return [deeper for layer in range(depth - 1) for deeper in range(layer + 1, depth)]


def noise_below_opposites_and_flips(depth: int) -> Sequence[int]:
    return [*noise_below_opposites(depth), *noise_below_opposites(depth)]


def noise_of_siblings(depth: int) -> Sequence[int]:
    return [deeper for layer in range(depth) for deeper in range(layer, depth)]


def noise_of_two_siblings(depth: int) -> Sequence[int]:
    return [deeper for layer in range(depth) for _ in range(2) for deeper in range(layer, depth)]


def one_of_the_layer(logits: Tensor) -> Tensor:
    return logits.new_full(logits.shape, 1 / logits.shape[-1])


def by_variance(flips: int) -> Callable[[Tensor], Tensor]:
    return lambda logits: proportional(bernoulli.variance(logits), flips)


@dataclass(frozen=True)
class Case:
    """An estimator and how its expectation can be taken."""

    make: Callable[[], Estimator]
    extra: Callable[[int], Sequence[int]] = no_extra_noise  # layers of its further noise, by depth
    opposite: bool = False  # whether it compares 1 - noise with the means
    relaxed: bool = False  # whether the value of the noise counts: then there are no cells to list
    independent: bool = False  # whether its paths know nothing of each other
    inclusion: Callable[[Tensor], Tensor] | None = None  # where it chooses units: their probabilities, by the logits
    nets: Sequence[Sequence[int]] | None = None  # whose noise can be listed; none: those of the test
    listed: bool = False  # whether a test of its own lists what cells cannot


SIBLING_NETS = [[3], [2, 1], [1, 2], [1, 1, 1]]
SMALL_NETS = [[3], [2, 2], [1, 1, 1], [1, 2, 1]]
CASES: dict[str, Case] = {
    "lr without baseline": Case(LikelihoodRatio, independent=True),
    "lr with running average": Case(lambda: LikelihoodRatio([RunningAverage()]), independent=True),
    "lr with input-dependent nets": Case(lambda: LikelihoodRatio([InputDependent(hidden=5)]), independent=True),
    "lr of the paper": Case(lambda: LikelihoodRatio([InputDependent(hidden=5), RunningAverage()]), independent=True),
    "lr, 3 samples": Case(
        lambda: LikelihoodRatio([InputDependent(hidden=5), RunningAverage()], samples=3), independent=True
    ),
    "crn": Case(CommonRandomNumbers, independent=True),
    "crn dense": Case(lambda: CommonRandomNumbers(engine="dense"), independent=True),
    "crn batched": Case(lambda: CommonRandomNumbers(engine="batched"), independent=True),
    "crn, 2 samples": Case(lambda: CommonRandomNumbers(samples=2), independent=True),
    "local expectation": Case(LocalExpectation, independent=True),
    "local expectation with baselines": Case(
        lambda: LocalExpectation([InputDependent(hidden=5), RunningAverage()]), independent=True
    ),
    "muprop": Case(MuProp, independent=True),
    "muprop with baselines": Case(lambda: MuProp([InputDependent(hidden=5), RunningAverage()]), independent=True),
    "rloo": Case(LeaveOneOut),
    "rloo, 3 samples": Case(lambda: LeaveOneOut(samples=3)),
    "sibling rloo": Case(lambda: LeaveOneOut(siblings=True), noise_of_siblings, nets=SIBLING_NETS),
    "sibling double control": Case(lambda: DoubleControl(siblings=True), noise_of_siblings, nets=SIBLING_NETS),
    "sibling rodeo": Case(lambda: Rodeo(hidden=5, siblings=True), noise_of_siblings, nets=SIBLING_NETS),
    "sibling rodeo, 3 samples": Case(
        lambda: Rodeo(3, hidden=5, siblings=True), noise_of_two_siblings, nets=[[2], [1, 1]]
    ),
    "vimco": Case(Vimco),
    "vimco, 3 samples": Case(lambda: Vimco(samples=3)),
    "optimal baseline": Case(lambda: OptimalBaseline(samples=2)),
    "optimal baseline, 3 samples": Case(lambda: OptimalBaseline(samples=3)),
    "double control": Case(DoubleControl),
    "double control, 3 samples": Case(lambda: DoubleControl(samples=3)),
    "arm": Case(Arm, extra=noise_below_opposites, opposite=True),
    "disarm": Case(DisArm, extra=noise_below_opposites, opposite=True),
    "arms": Case(Arms, relaxed=True, listed=True),
    "arms, 3 paths": Case(lambda: Arms(3), relaxed=True, listed=True),
    "pruned": Case(Pruned, inclusion=by_variance(1), nets=SMALL_NETS),
    "pruned, 2 flips": Case(lambda: Pruned(flips=2), inclusion=by_variance(2), nets=[[3], [3, 1], [1, 3]]),
    "bitflip": Case(Bitflip, noise_below_opposites, inclusion=one_of_the_layer, nets=SMALL_NETS),
    "ugc": Case(
        Ugc, noise_below_opposites_and_flips, opposite=True, inclusion=one_of_the_layer, nets=[[3], [2, 1], [1, 2]]
    ),
    "rodeo": Case(lambda: Rodeo(hidden=5)),
    "rodeo, 3 samples": Case(lambda: Rodeo(samples=3, hidden=5)),
    "local disarm": Case(LocalDisArm, noise_below_opposites, opposite=True, nets=[[2], [1, 1]]),
    "rebar": Case(Rebar, relaxed=True),
    "relax": Case(lambda: Relax(hidden=5), relaxed=True),
    "straight-through": Case(StraightThrough, independent=True),
    "gumbel-softmax": Case(GumbelSoftmax, relaxed=True),
    "gumbel-rao": Case(lambda: GumbelSoftmax(rao=3), relaxed=True),
    "reinmax": Case(ReinMax, independent=True),
    "reinmax-rao": Case(lambda: ReinMax(temperature=0.7, draws=3), relaxed=True),
    "reinmax-cv": Case(lambda: ReinMax(temperature=0.7, draws=3, control=1.0), relaxed=True),
}
UNBIASED = [name for name, case in CASES.items() if case.make().unbiased]
BIASED = [name for name in CASES if name not in UNBIASED]
