import re
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

from lightning_modules.gradient_variance import metrics_of
from lightning_modules.run.tensorboard import IMAGES, RunTensorBoard
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure.variance import measure
from tests.releg.helpers import random_model, random_x


def logged(folder: Path) -> EventAccumulator:
    """The events of a run with a measurement of two estimators."""
    logger = RunTensorBoard(folder, name="", version="")
    model, images = random_model(5, [3, 2]), random_x(2, 5)
    estimators = {"mine": CommonRandomNumbers("dense"), "common_random_numbers": CommonRandomNumbers("dense")}
    logger.log_metrics({"train/elbo": -3.0, "epoch": 0}, 10)
    logger.log_metrics(metrics_of(measure(estimators, model, images, 2), "mine"), 10)
    logger.log_metrics({"val/elbo": -2.0, "epoch": 0}, 10)
    tested = {"test/elbo": -2.0, "test/multi_sample_bound": -1.0}
    logger.log_metrics(tested, 10)
    logger.log_hyperparams({"seed": 0}, {**tested, "step": 10.0})
    logger.save()
    return EventAccumulator(str(folder)).Reload()


def test_bounds_come_first_by_name_and_nothing_repeats_the_step(tmp_path: Path) -> None:
    events = logged(tmp_path)
    tags = sorted(events.Tags()["scalars"])
    assert tags[:4] == ["bound/test", "bound/test_multi_sample", "bound/train", "bound/val"]
    assert tags[4:] == [
        f"grad_variance/{name}{kind}/layer{layer}"
        for name, kind in [("", "between"), *(("crn/", kind) for kind in ("between", "total", "within"))]
        for layer in (1, 2)
    ] + [f"grad_variance/{kind}/layer{layer}" for kind in ("total", "within") for layer in (1, 2)]
    assert tags[-1] < IMAGES, "the group that comes last"
    assert {event.step for tag in tags for event in events.Scalars(tag)} == {10}, "no value at step 0"


def test_one_chart_has_the_variances_of_all_layers(tmp_path: Path) -> None:
    events = logged(tmp_path)
    (event,) = events.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    (category,) = layout.category
    shown = {}
    for chart in category.chart:
        (pattern,) = chart.multiline.tag
        shown[chart.title] = [tag for tag in events.Tags()["scalars"] if re.fullmatch(pattern, tag)]
    assert shown["total, the run's estimator"] == [f"grad_variance/total/layer{layer}" for layer in (1, 2)]
    assert shown["total, CRN at the same weights"] == [f"grad_variance/crn/total/layer{layer}" for layer in (1, 2)]
