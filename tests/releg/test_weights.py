"""Saved models come back as they were, and damaged or foreign files are refused with a sentence."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from torch import Tensor

from releg import bounds, checkpoint_file, safetensors_file, weights
from tests.releg.helpers import random_model, random_x

# --- the format -----------------------------------------------------------------------------------------------------


def file_of(header: object, numbers: bytes) -> bytes:
    """As the format is described: length, JSON, numbers."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


def test_a_file_made_by_hand_is_read(tmp_path: Path) -> None:
    header = {
        "b": {"dtype": "F32", "shape": [2, 1], "data_offsets": [8, 16]},
        "a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
        "__metadata__": {"by": "hand"},
    }
    (tmp_path / "x").write_bytes(file_of(header, struct.pack("<qff", -7, 1.5, -2.0)))
    tensors, metadata = safetensors_file.read(tmp_path / "x")
    assert metadata == {"by": "hand"}
    assert torch.equal(tensors["a"], torch.tensor(-7))
    assert torch.equal(tensors["b"], torch.tensor([[1.5], [-2.0]]))


def test_a_file_is_written_as_the_format_is_described(tmp_path: Path) -> None:
    values = torch.tensor([[1.5, -2.0, 3.0], [0.0, 1.0, 2.0]])
    safetensors_file.write(tmp_path / "x", {"a": values.T, "b": torch.tensor(True)}, {"by": "me"})
    content = (tmp_path / "x").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header == {
        "__metadata__": {"by": "me"},
        "a": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]},
        "b": {"dtype": "BOOL", "shape": [], "data_offsets": [24, 25]},
    }
    assert length % 8 == 0
    assert struct.unpack("<6f?", content[8 + length :]) == (1.5, 0.0, -2.0, 1.0, 3.0, 2.0, True)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("dtype", list(safetensors_file.TYPES.values()), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)], ids=str)
def test_tensors_of_every_type_and_shape_come_back(shape: tuple[int, ...], dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = {"a": (10 * torch.rand(shape)).to(dtype), "empty": torch.empty(0), "last": torch.ones(2).to(dtype)}
    safetensors_file.write(tmp_path / "x", tensors, {})
    found, metadata = safetensors_file.read(tmp_path / "x")
    assert metadata == {}
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends within its header"),
        (b"\xff" * 30, "ends within its header"),
        (struct.pack("<Q", 3) + b"{,}", "is damaged"),
        (file_of([1, 2], b""), "is damaged"),
        (file_of({"a": {**ENTRY, "dtype": "F33"}}, bytes(8)), "is damaged"),
        (file_of({"a": {**ENTRY, "shape": [3]}}, bytes(8)), "is damaged"),
        (file_of({"a": {**ENTRY, "shape": [1 << 30], "data_offsets": [0, 0]}}, b""), "0 bytes do not make a tensor of"),
        (file_of({"a": {**ENTRY, "shape": [1 << 80, 0], "data_offsets": [0, 0]}}, b""), "is damaged"),
        (file_of({"a": {**ENTRY, "shape": [-1, -2]}}, bytes(8)), "is damaged"),
        (file_of({"a": {**ENTRY, "data_offsets": [0, 9]}}, bytes(8)), "offsets 0 to 9 lie outside its 8 bytes"),
        (file_of({"a": ENTRY}, bytes(12)), "4 bytes follow the last tensor"),
        (file_of({"a": ENTRY, "b": ENTRY}, bytes(8)), "belongs to no tensor, or to two"),
    ],
)
def test_files_that_are_not_whole_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=rf"{message}.*, expected a safetensors file; use a whole"):
        safetensors_file.read(tmp_path / "x")


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_model_comes_back_with_its_metadata(dtype: torch.dtype, tmp_path: Path) -> None:
    model, path = random_model(5, [4, 3, 2], dtype=dtype), tmp_path / "net.safetensors"
    weights.save_model(path, model, {"step": "12"})
    again = weights.load(str(path))
    assert again.layers == [4, 3, 2]
    assert again.data_size == 5
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    metadata = weights.load_weights(path)[1]
    assert (metadata["architecture"], metadata["step"]) == ("2-3-4", "12")


def test_one_changed_byte_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    weights.save_model(path, random_model(5, [4, 3]))
    content = path.read_bytes()
    padding = 7 + int.from_bytes(content[:8], "little")  # the last byte of the header, of no meaning
    assert content[padding : padding + 1] == b" "
    changes = [*((position, content[position] ^ 16) for position in range(0, len(content), 37)), (padding, ord("\n"))]
    for position, byte in changes:
        path.write_bytes(content[:position] + bytes([byte]) + content[position + 1 :])
        with pytest.raises(ValueError, match=r"net\.safetensors"):
            weights.load(path)


def lightning_like(path: Path, state_dict: dict[str, Tensor]) -> None:
    torch.save({"state_dict": state_dict, "epoch": 1}, path)


def test_a_checkpoint_gives_its_net(tmp_path: Path) -> None:
    model = random_model(5, [4, 3])
    prefixed = {f"model.{name}": value for name, value in model.state_dict().items()}
    lightning_like(tmp_path / "best.ckpt", {**prefixed, "estimator.alpha": torch.zeros(2)})
    again = weights.load(tmp_path / "best.ckpt")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


class Code:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("code of the file was run",))


def test_foreign_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.ckpt, expected a .safetensors file or"):
        weights.load(tmp_path / "none.ckpt")
    (tmp_path / "text.ckpt").write_text("hello")
    torch.save({"state_dict": Code()}, tmp_path / "code.ckpt")
    for name in ("text.ckpt", "code.ckpt"):
        with pytest.raises(ValueError, match=r"holds something other|is damaged \(the file cannot be read"):
            weights.load(tmp_path / name)
    assert capsys.readouterr().out == ""
    lightning_like(tmp_path / "other.ckpt", {"model.weight": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"holds \['weight'\] ..., expected the weights of a sigmoid belief net"):
        weights.load(tmp_path / "other.ckpt")
    lightning_like(tmp_path / "part.ckpt", {"model.inference.0.weight": torch.zeros(2, 3)})
    with pytest.raises(ValueError, match=r"does not hold a whole SBN\(2\)"):
        weights.load(tmp_path / "part.ckpt")
    torch.save([1, 2], tmp_path / "list.ckpt")
    with pytest.raises(ValueError, match=r"is damaged .*, expected a whole checkpoint"):
        weights.load(tmp_path / "list.ckpt")
    torch.save({"epoch": 1}, tmp_path / "none.ckpt")
    with pytest.raises(ValueError, match="holds no state_dict, expected a checkpoint written by releg fit"):
        weights.load(tmp_path / "none.ckpt")


@pytest.mark.parametrize("position", [0.1, 0.5, 0.99])
def test_a_checkpoint_that_does_not_fit_its_digest_is_refused_by_both_loaders(position: float, tmp_path: Path) -> None:
    from lightning_modules.sbn_module import SBNModule

    state = {f"model.{name}": value for name, value in random_model(5, [4, 3]).state_dict().items()}
    content = {"state_dict": state, "epoch": 1}
    path = tmp_path / "best.ckpt"
    torch.save({**content, "digest": checkpoint_file.digest(content)}, path)
    assert weights.load(path).layers == [4, 3]
    changed = {**content, "state_dict": {**state, "model.prior_logits": state["model.prior_logits"] + 1}}
    torch.save({**changed, "digest": checkpoint_file.digest(content)}, path)
    for load in (weights.load, SBNModule.load_from_checkpoint):
        with pytest.raises(ValueError, match=r"is damaged .its content does not fit its digest., expected a whole"):
            load(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(position * len(whole))])
    for load in (weights.load, SBNModule.load_from_checkpoint):
        with pytest.raises(ValueError, match=r"is damaged|holds something other"):
            load(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.full((3,), torch.nan), "holds weights that are not finite"),
        (torch.zeros(3, dtype=torch.long), "holds weights that are no floating-point numbers"),
        (torch.zeros(3, dtype=torch.bool), "holds weights that are no floating-point numbers"),
    ],
)
def test_weights_that_no_net_can_have_are_refused_by_both_loaders(value: Tensor, message: str, tmp_path: Path) -> None:
    from lightning_modules.sbn_module import SBNModule

    state = {**random_model(5, [4, 3]).state_dict(), "prior_logits": value}
    lightning_like(tmp_path / "best.ckpt", {f"model.{name}": tensor for name, tensor in state.items()})
    for load in (weights.load, SBNModule.load_from_checkpoint):
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "best.ckpt")


def test_published_weights_are_found_by_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_clone = weights.load("200-200/crn")
    assert in_clone.architecture == "200-200"
    monkeypatch.chdir(tmp_path)
    assert weights.load("200-200/crn").layers == in_clone.layers
    (tmp_path / "results/weights/3-4").mkdir(parents=True)
    weights.save_model("results/weights/3-4/crn.safetensors", random_model(5, [4, 3]))
    assert weights.load("3-4/crn").layers == [4, 3]
    with pytest.raises(FileNotFoundError, match="there are no published weights '3-4/lr' here, expected"):
        weights.load("3-4/lr")


# --- what one does with them ----------------------------------------------------------------------------------------


def test_a_model_generates_and_reconstructs_with_noise_of_its_own_or_given() -> None:
    model, x = random_model(6, [4, 3], dtype=torch.float32), random_x(5, 6, dtype=torch.float32)
    images = model.generate(16, generator=torch.Generator().manual_seed(1))
    assert images.shape == (16, 6)
    assert set(images.unique().tolist()) <= {0.0, 1.0}
    assert torch.equal(images, model.generate(16, generator=torch.Generator().manual_seed(1)))
    noise = [torch.rand(2, size) for size in (4, 3, 6)]
    assert torch.equal(model.generate(2, noise), model.ancestral(noise[:2], noise[2])[0])
    with pytest.raises(ValueError, match=r"noise has shapes \[\(2, 4\).* expected \[\(3, 4\).*; leave it out"):
        model.generate(3, noise)
    given = model.draw_noise(x)
    means = model.reconstruct(x, given)
    assert torch.equal(means, torch.sigmoid(model.generative_logits(model.infer(x, given).z)[0]))
    assert model.reconstruct(x).shape == (5, 6)


def test_bounds_draw_their_own_noise_or_take_what_is_given() -> None:
    model, x = random_model(6, [4, 3]), random_x(5, 6)
    drawn = bounds.log_weights(model, x, 3, torch.Generator().manual_seed(2))
    assert torch.equal(bounds.elbo(model, x, 3, torch.Generator().manual_seed(2)), drawn.mean(1))
    assert torch.equal(
        bounds.multi_sample(model, x, 3, torch.Generator().manual_seed(2)), bounds.log_mean_weight(drawn)
    )
    noise = [torch.rand(3, 5, size, dtype=torch.float64) for size in (4, 3)]
    by_hand = [bounds.log_weights(model, x, 1, noise=[u[k : k + 1] for u in noise]) for k in range(3)]
    torch.testing.assert_close(bounds.elbo(model, x, samples=3, noise=noise), torch.cat(by_hand, 1).mean(1))
