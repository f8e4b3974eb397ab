"""What all pages share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from releg.records.file_names import LIBRARY, PYRO
from releg.report.every_page import PAGES
from tests.releg.report.synthetic import write_results

OWN = [page for page in PAGES if page[0] not in (LIBRARY, PYRO)]  # of numbers that users make themselves


@pytest.mark.parametrize("content", ["", '[{"steps": 3}]'])
@pytest.mark.parametrize(("file", "write"), OWN)
def test_damaged_numbers_are_named(file: str, write: Callable[[Path], object], content: str, tmp_path: Path) -> None:
    path = write_results(tmp_path, []) / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"{path.name} cannot be read \(.*\), expected .*; "):
        write(tmp_path)
