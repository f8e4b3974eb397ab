"""Compiled code on disk: damaged, it is compiled again; where others could put their own, it is not loaded."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest

from releg.compiled import elementwise, kept_code
from releg.compiled.kept_code import compile_kept
from releg.kernels.cpu import entry


@pytest.fixture
def plain_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Loads a function from a file of its own, as a new process would."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    file = tmp_path / "plain.py"
    file.write_text("def plain(address):\n    return None\n")

    def fresh() -> Any:
        spec = importlib.util.spec_from_file_location("plain", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.plain

    return fresh


def with_a_flipped_bit(code: bytes) -> bytes:
    """In the middle, where it mostly still unpickles."""
    half = len(code) // 2
    return code[:half] + bytes([code[half] ^ 1]) + code[half + 1 :]


DAMAGES = [lambda code: b"", lambda code: bytes(len(code)), lambda code: code[:40], with_a_flipped_bit]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_code_is_compiled_again_and_said_once(
    plain_function: Callable[[], Any],
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    ending: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    compile_kept(plain_function(), {})
    (file,) = (tmp_path / "__pycache__").glob(f"*.{ending}")
    file.write_bytes(damage(file.read_bytes()))
    for _ in range(2):
        assert compile_kept(plain_function(), {}).address
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("compiled code in ")
    assert said.endswith(f".{ending} does not fit its digest); compiling it again")
    assert compile_kept(plain_function(), {}).cache_hits == 1


def test_damaged_code_of_the_loops_and_of_the_kernel_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    elementwise.compiled.__wrapped__(elementwise.score_layer)  # all loops, RMSprop's too, are compiled by this
    (index,) = tmp_path.rglob("*.nbi")
    index.write_bytes(b"")
    assert elementwise.compiled.__wrapped__(elementwise.score_layer).address
    assert caplog.text.count("does not fit its digest); compiling it again") == 1
    assert entry.compile_kept is compile_kept  # the CPU kernel takes half a minute


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_code_that_others_could_write_is_kept_in_the_users_own_folder(
    mode: int, plain_function: Callable[[], Any], tmp_path: Path
) -> None:
    folder = tmp_path / "__pycache__"
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)
    compile_kept(plain_function(), {})
    assert not list(folder.glob("*.nb?"))
    (kept,) = (tmp_path / "home" / "releg").glob("*/*.nbc")
    assert kept.parent.stat().st_mode & 0o077 == 0
    assert compile_kept(plain_function(), {}).cache_hits == 1


def test_code_in_a_file_that_others_can_write_is_not_loaded(plain_function: Callable[[], Any], tmp_path: Path) -> None:
    compile_kept(plain_function(), {})
    (code,) = (tmp_path / "__pycache__").glob("*.nbc")
    code.parent.chmod(0o755)
    assert compile_kept(plain_function(), {}).cache_hits == 1
    code.chmod(0o666)
    assert compile_kept(plain_function(), {}).cache_hits == 0


def test_without_a_private_folder_code_is_not_kept_which_is_said(
    plain_function: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept_code, "is_private", lambda folder: False)
    assert compile_kept(plain_function(), {}).address
    assert "compiled code is not kept, since other users can write" in caplog.text
    assert not list(tmp_path.rglob("*.nb?"))
