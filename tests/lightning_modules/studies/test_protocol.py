"""The runs under the RODEO paper's protocol."""

from pathlib import Path

from lightning_modules.grid.plan import status_of
from lightning_modules.run.folder import save_config
from lightning_modules.studies.protocol import ESTIMATORS, POINT, Trained, curve, numbers
from lightning_modules.studies.study import UNFINISHED
from releg.records.file_names import METRICS
from tests.lightning_modules.run_states import leave_finished


def test_every_run_follows_the_protocol_for_all_of_its_steps(tmp_path: Path) -> None:
    for trained in map(Trained, ESTIMATORS):
        config = status_of(trained.run(tmp_path)).config
        assert config["trainer"]["max_steps"] == 1_000_000
        assert config["model"]["layers"] == [200, 200, 200]
        assert config["model"]["optimizer"]["class_path"] == "torch.optim.Adam"
        assert config["model"]["learned_prior"] is False
        estimator = config["model"]["estimator"]
        assert estimator["class_path"].split(".")[-2] == trained.estimator.removeprefix("sibling_")
        assert estimator.get("init_args", {}).get("siblings", False) == trained.estimator.startswith("sibling_")


def test_a_curve_has_the_mean_of_every_thousand_steps() -> None:
    rows = [{"step": str(step), "metric": "train/elbo", "value": str(-step)} for step in range(100, 2 * POINT + 1, 100)]
    rows.insert(3, {"step": "300", "metric": "val/elbo", "value": "7"})
    assert curve(rows) == [(1000, -550.0), (2000, -1550.0)]


def test_a_run_under_way_has_its_bounds_so_far_and_a_finished_one_those_on_the_test_images(tmp_path: Path) -> None:
    run = Trained("sibling_rodeo").run(tmp_path)
    save_config(status_of(run).folder, status_of(run).config)
    rows = ["step,seconds,metric,value", "100,1.0,train/elbo,-150.0", "5000,90.0,val/elbo,-120.0"]
    (status_of(run).folder / METRICS).write_text("\n".join([*rows, "10000,180.0,val/elbo,-125.0\n"]))
    so_far = numbers(status_of(run))
    assert so_far.pop(UNFINISHED)
    assert (so_far["label"], so_far["train"], so_far["val/elbo"]) == ("Sibling RODEO", [(1000, -150.0)], -120.0)
    assert (so_far["minutes"], so_far["test/elbo"], so_far["test/multi_sample_bound"]) == (3.0, None, None)
    leave_finished(status_of(run))
    finished = numbers(status_of(run))
    assert not finished[UNFINISHED]
    assert (finished["test/elbo"], finished["test/multi_sample_bound"]) == (-100.0, -99.0)
