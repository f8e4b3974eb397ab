"""The digest of the code behind a measurement changes with that code, and with nothing else."""

from pathlib import Path

import pytest

from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure import code
from releg.measure.code import code_digest
from tests.releg.measure.test_variance import Recorder


def test_the_digest_is_of_what_is_measured_and_not_of_what_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "PACKAGE", tmp_path)
    monkeypatch.setattr(code, "ONLY_SHOWN", {tmp_path / "report"})
    (tmp_path / "report").mkdir()
    (tmp_path / "sbn.py").write_text("one")
    first = code_digest([])
    (tmp_path / "report" / "table.py").write_text("a table")
    assert code_digest([]) == first
    (tmp_path / "sbn.py").write_text("two")
    assert code_digest([]) != first


def test_an_estimator_from_elsewhere_counts_and_a_shipped_one_is_counted_already() -> None:
    assert code_digest([CommonRandomNumbers()]) == code_digest([])
    assert code_digest([Recorder(1)]) != code_digest([])
