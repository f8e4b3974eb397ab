"""result.json: what a finished run says of itself."""

import json
from pathlib import Path

import pytest

from lightning_modules.run.result import read_result
from tests.lightning_modules.run_states import RESULT


@pytest.mark.parametrize(
    "text", ["", '{"steps": 5', "[]", "{}", json.dumps(RESULT), json.dumps({**RESULT, "test/elbo": float("-inf")})]
)
def test_a_damaged_result_is_told_with_what_to_do(tmp_path: Path, text: str) -> None:
    assert read_result(tmp_path) is None
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(ValueError, match=r"result\.json is damaged, expected .*; delete it, and"):
        read_result(tmp_path)
