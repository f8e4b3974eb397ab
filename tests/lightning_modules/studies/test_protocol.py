"""The runs under the RODEO paper's protocol."""

from pathlib import Path

from lightning_modules.grid.plan import status_of
from lightning_modules.studies.protocol import POINT, curve, planned


def test_every_run_follows_the_protocol_for_all_of_its_steps(tmp_path: Path) -> None:
    for trained in planned():
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
