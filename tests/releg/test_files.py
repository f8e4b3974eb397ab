"""Files are there whole or not at all."""

import json
from pathlib import Path

import pytest

from releg.files import check_writable, remove_leftovers, replacing, write_atomically, write_json


@pytest.mark.parametrize("content", ["text ± 1\n", b"\x00bytes"])
def test_text_and_bytes_are_written_into_folders_that_may_not_exist_yet(tmp_path: Path, content: str | bytes) -> None:
    path = write_atomically(tmp_path / "new" / "file", content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)


def test_the_old_file_stays_until_the_new_one_is_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "file", "old")

    def fail_half_way() -> None:
        with replacing(path) as file:
            file.write(b"ne")
            assert path.read_text() == "old"
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        fail_half_way()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "old")]


def test_what_killed_processes_left_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    for name in (".file.9.part", "file", ".hidden"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "file"]


def test_a_folder_is_known_to_be_writable_before_anything_is_computed_for_it(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cannot write to .*/file \(.*\), expected a folder that can be written; name"):
        check_writable(tmp_path / "file")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_enter_no_json(number: float, tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"rows": [{"elbo": number, "step": 1}], "pair": (1.5, number)})
    assert json.loads((tmp_path / "a.json").read_text()) == {"rows": [{"elbo": None, "step": 1}], "pair": [1.5, None]}
