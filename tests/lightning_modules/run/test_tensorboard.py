import re
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

from lightning_modules.gradient_variance import metrics_of
from lightning_modules.run.tensorboard import IMAGES, RunTensorBoard
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.measure.variance import measure
from tests.releg.helpers import random_model, random_x

CRN = "common_random_numbers"
LR = "likelihood_ratio"


def logged(folder: Path, own: str, *others: str) -> EventAccumulator:
    """The events of a run with two measurements of its own and of other estimators."""
    logger = RunTensorBoard(folder, name="", version="")
    model, images = random_model(5, [3, 2]), random_x(2, 5)
    known: dict[str, Estimator] = {LR: LikelihoodRatio(), CRN: CommonRandomNumbers("dense")}
    estimators = {name: known.get(name, known[CRN]) for name in (own, *others)}
    logger.log_metrics({"train/elbo": -3.0, "epoch": 0}, 10)
    for step in (10, 20):
        logger.log_metrics(metrics_of(measure(estimators, model, images, 2), own), step)
    logger.log_metrics({"val/elbo": -2.0, "epoch": 0}, 20)
    tested = {"test/elbo": -2.0, "test/multi_sample_bound": -1.0}
    logger.log_metrics(tested, 20)
    logger.log_hyperparams({"seed": 0}, {**tested, "step": 20.0})
    logger.save()
    return EventAccumulator(str(folder)).Reload()


def charts(events: EventAccumulator) -> dict[str, list[str]]:
    """The tags in each chart."""
    (event,) = events.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    (category,) = layout.category
    shown = {}
    for chart in category.chart:
        (pattern,) = chart.multiline.tag
        shown[chart.title] = [tag for tag in events.Tags()["scalars"] if re.fullmatch(pattern, tag)]
    return shown


def test_bounds_come_first_by_name_and_nothing_repeats_the_step(tmp_path: Path) -> None:
    events = logged(tmp_path, LR, CRN)
    tags = sorted(events.Tags()["scalars"])
    assert tags[:4] == ["bound/test", "bound/test_multi_sample", "bound/train", "bound/val"]
    assert all(tag.startswith("grad_variance/") for tag in tags[4:])
    assert tags[-1] < IMAGES, "the group that comes last"
    assert {event.step for tag in tags for event in events.Scalars(tag)} == {10, 20}, "no value at step 0"


def test_one_chart_has_the_variances_of_all_layers_and_no_variance_is_outside_the_charts(tmp_path: Path) -> None:
    events = logged(tmp_path, LR, CRN)
    shown = charts(events)
    assert list(shown) == [
        "total, the run's estimator",
        "total, CRN at the same weights",
        "within, the run's estimator",
        "within, CRN at the same weights",
        "exact_within, the run's estimator",
    ]
    assert shown["total, the run's estimator"] == [f"grad_variance/total/layer{layer}" for layer in (1, 2)]
    assert shown["total, CRN at the same weights"] == [f"grad_variance/crn/total/layer{layer}" for layer in (1, 2)]
    in_charts = sorted(tag for tags in shown.values() for tag in tags)
    assert in_charts == sorted(tag for tag in events.Tags()["scalars"] if tag.startswith("grad_variance/"))


def test_no_chart_is_empty(tmp_path: Path) -> None:
    assert list(charts(logged(tmp_path / "crn", CRN))) == ["total, the run's estimator", "within, the run's estimator"]
    other = charts(logged(tmp_path / "other", CRN, "a+b"))
    assert other["total, a+b at the same weights"] == [f"grad_variance/a+b/total/layer{layer}" for layer in (1, 2)]


def test_a_run_that_measures_nothing_has_no_charts(tmp_path: Path) -> None:
    logger = RunTensorBoard(tmp_path, name="", version="")
    logger.log_metrics({"train/elbo": -3.0}, 10)
    logger.save()
    assert EventAccumulator(str(tmp_path)).Reload().Tags()["tensors"] == []
