from pathlib import Path

import pytest
from jsonargparse import ArgumentError

from lightning_modules.shipped_estimators import name_of, read_estimator, shipped_names
from releg.estimators.common_random_numbers import CommonRandomNumbers

CRN = "releg.estimators.common_random_numbers.CommonRandomNumbers"


def test_every_shipped_estimator_can_be_named_and_has_a_label_of_its_own() -> None:
    labels = {name: read_estimator(name).label for name in shipped_names()}
    assert {"likelihood_ratio": "LR", "likelihood_ratio_plain": "LR, no baseline"}.items() <= labels.items()
    assert "" not in labels.values()
    assert len(set(labels.values())) == len(labels)


@pytest.mark.parametrize("config", shipped_names())
def test_an_estimator_has_the_name_of_its_config_or_of_one_of_the_same_class(config: str) -> None:
    name = name_of(read_estimator(config))
    if name != config:
        assert type(read_estimator(name)) is type(read_estimator(config))


def test_an_estimator_that_is_not_shipped_has_the_name_of_its_class() -> None:
    class DoubleFlip(CommonRandomNumbers):
        pass

    assert name_of(DoubleFlip()) == "double_flip"


@pytest.mark.parametrize(
    "text",
    [
        "model: 3",
        "model: {estimator: {class_path: torch.nn.ReLU}}",
        f"model: {{estimator: {{class_path: {CRN}, init_args: {{sample: 1}}}}}}",
    ],
    ids=["no estimator", "another class", "another setting"],
)
def test_a_file_that_describes_no_estimator_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ArgumentError, match="model"):
        read_estimator(str(tmp_path / "bad.yaml"))


def test_a_name_that_is_not_shipped_is_answered_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="there is no estimator magic, expected one of arm, arms,"):
        read_estimator("magic")
