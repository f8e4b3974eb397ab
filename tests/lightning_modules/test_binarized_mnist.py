from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import NormalDist
from threading import Thread
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from torchvision.datasets import MNIST

from lightning_modules.binarized_mnist import SPLITS, BinarizedMNIST, EvalLoader, Split, TrainLoader, redraw
from lightning_modules.mnist import files as mnist_files
from lightning_modules.mnist.files import (
    FIXED_BITS_SHA256,
    LAROCHELLE_ROWS,
    REPOSITORY_DATA,
    UNPACKED_SHA256,
    fixed_bits,
    prepare_mnist,
    read_larochelle,
    read_pixels,
)

ARCHIVES = [name for name, _ in MNIST.resources]
COMPLETE = sorted([*ARCHIVES, *UNPACKED_SHA256])
ALL_SPLITS: list[Split] = ["train", "val", "test"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    prepare_mnist(folder)
    return folder


@pytest.fixture(scope="module")
def fixed(data_dir: Path) -> BinarizedMNIST:
    return loaded(BinarizedMNIST(data_dir))


@pytest.fixture(scope="module")
def dynamic(data_dir: Path) -> BinarizedMNIST:
    return loaded(BinarizedMNIST(data_dir, binarization="dynamic"))


def loaded(data: BinarizedMNIST) -> BinarizedMNIST:
    data.prepare_data()
    data.setup("fit")
    return data


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def assert_one_sentence(error: pytest.ExceptionInfo[BaseException], *parts: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    assert "expected" in message
    assert ";" in message, "a fix follows the semicolon"
    for part in parts:
        assert part in message


def largest_z_of_chance(count: int) -> float:
    """Bound that `count` standard normal variables all keep, with probability 0.999 at least (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.001 / (2 * count))


# --- splits and bits


def test_splits_are_disjoint_and_sized(fixed: BinarizedMNIST) -> None:
    rows = [set(range(70_000)[SPLITS[split]]) for split in ALL_SPLITS]
    assert (
        [len(fixed.images(split)) for split in ALL_SPLITS] == [len(part) for part in rows] == [50_000, 10_000, 10_000]
    )
    assert len(set.union(*rows)) == 70_000


def test_splits_are_the_training_file_in_order_and_then_the_test_file(dynamic: BinarizedMNIST, data_dir: Path) -> None:
    train, test = (MNIST(data_dir, train=is_train).data.reshape(-1, 784).numpy() for is_train in (True, False))
    assert np.array_equal(dynamic.images("train"), train[:50_000])
    assert np.array_equal(dynamic.images("val"), train[50_000:])
    assert np.array_equal(dynamic.images("test"), test)


def test_the_fixed_bits_are_the_recorded_ones(fixed: BinarizedMNIST, data_dir: Path) -> None:
    bits = np.concatenate([fixed.images(split) for split in ALL_SPLITS])
    assert bits.dtype == np.uint8
    assert bits.max() == 1
    assert fixed.checksum == hashlib.sha256(np.packbits(bits).tobytes()).hexdigest() == FIXED_BITS_SHA256
    # the whole protocol in one line, for the first images
    pixels = read_pixels(data_dir)[:2000]
    assert np.array_equal(bits[:2000], np.random.RandomState(2016).random_sample((2000, 784)) < pixels / 255)


def test_the_fixed_bits_depend_neither_on_the_seed_nor_on_the_chunk(fixed: BinarizedMNIST, data_dir: Path) -> None:
    assert BinarizedMNIST(data_dir, seed=7).checksum == fixed.checksum
    pixels = read_pixels(data_dir)[:1000]
    assert np.array_equal(fixed_bits(pixels, chunk=333), fixed.images("train")[:1000])


def expectation_and_variance(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the number of images in which each pixel is on, each (784,), if bits are independent."""
    squares = np.arange(256, dtype=np.uint32) ** 2
    expectation = pixels.sum(0, dtype=np.int64) / 255
    return expectation, expectation - squares[pixels].sum(0, dtype=np.int64) / 255**2


def test_each_pixel_is_on_as_often_as_its_intensity_says(fixed: BinarizedMNIST, dynamic: BinarizedMNIST) -> None:
    for split in ALL_SPLITS:
        expectation, variance = expectation_and_variance(dynamic.images(split))
        excess = fixed.images(split).sum(0, dtype=np.int64) - expectation
        assert np.all(np.abs(excess[variance == 0]) < 1e-9)
        varied = variance > 25  # below, counts are too small to be normal
        assert varied.sum() > 400
        z = excess[varied] / np.sqrt(variance[varied])
        assert np.abs(z).max() < largest_z_of_chance(len(z))


def test_each_intensity_is_on_with_its_own_probability(fixed: BinarizedMNIST, dynamic: BinarizedMNIST) -> None:
    pixels = dynamic.images("test").ravel()
    count = np.bincount(pixels, minlength=256)
    on = np.bincount(pixels, weights=fixed.images("test").ravel(), minlength=256)
    assert on[0] == 0
    assert on[255] == count[255]
    p = np.arange(1, 255) / 255
    z = (on[1:255] - count[1:255] * p) / np.sqrt(count[1:255] * p * (1 - p))
    assert np.abs(z).max() < largest_z_of_chance(len(z))


def test_redrawn_bits_have_exactly_the_probability_of_their_intensity() -> None:
    pixels = np.tile(np.arange(256, dtype=np.uint8), (40_000, 1))
    on = redraw(pixels, seed=1).sum(0)
    assert on[0] == 0
    assert on[255] == 40_000
    p = np.arange(1, 255) / 255
    z = (on[1:255] - 40_000 * p) / np.sqrt(40_000 * p * (1 - p))
    assert np.abs(z).max() < largest_z_of_chance(len(z))


def test_redrawn_bits_are_the_same_for_ever() -> None:
    bits = redraw(np.arange(256, dtype=np.uint8).repeat(4), seed=5)
    assert hashlib.sha256(np.packbits(bits).tobytes()).hexdigest()[:16] == "1d29b0a9f4ac3c06"


def test_the_mean_is_that_of_what_training_sees(fixed: BinarizedMNIST, dynamic: BinarizedMNIST) -> None:
    on = fixed.images("train").sum(0, dtype=np.int64)
    expectation, _ = expectation_and_variance(dynamic.images("train"))
    for mean, count in ((fixed.mean, on), (dynamic.mean, expectation)):
        assert mean.dtype == torch.float32
        assert mean.shape == (784,)
        np.testing.assert_allclose(mean, count / 50_000, rtol=1e-7)


# --- batches


def train_loader(count: int, batch_size: int, **options: Any) -> TrainLoader:
    """Loader over `count` images whose first pixels spell their own index in base 2."""
    index = (np.arange(count)[:, None] >> np.arange(10)) & 1
    return TrainLoader(images=index.astype(np.uint8), batch_size=batch_size, **{"seed": 0, **options})


def indices(batch: torch.Tensor) -> list[int]:
    return [int(i) for i in batch.to(torch.int64) @ (1 << torch.arange(10))]


def test_a_batch_is_contiguous_float32_zeros_and_ones(fixed: BinarizedMNIST, dynamic: BinarizedMNIST) -> None:
    loaders: list[tuple[TrainLoader | EvalLoader, int]] = [
        (fixed.train_dataloader(), 100),
        (fixed.val_dataloader(), 500),
        (dynamic.train_dataloader(), 100),
        (dynamic.test_dataloader(), 500),
    ]
    for loader, size in loaders:
        x = next(iter(loader))
        assert x.shape == (size, 784)
        assert x.dtype == torch.float32
        assert x.is_contiguous()
        assert set(x.unique().tolist()) == {0.0, 1.0}


def test_training_has_500_batches_of_100_by_default(fixed: BinarizedMNIST) -> None:
    assert [len(x) for x in fixed.train_dataloader()] == [100] * 500


@given(count=st.integers(1, 300), batch_size=st.integers(1, 400), epochs=st.integers(1, 3))
def test_an_epoch_serves_every_image_exactly_once(count: int, batch_size: int, epochs: int) -> None:
    loader = train_loader(count, batch_size)
    for _ in range(epochs):
        batches = [indices(x) for x in loader]
        assert len(batches) == len(loader)
        assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(loader) - 1)
        assert sorted(index for batch in batches for index in batch) == list(range(count))


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    def order(seed: int) -> list[list[int]]:
        return [indices(x) for x in train_loader(1000, 100, seed=seed)]

    assert order(0) == order(0)
    assert order(0) != order(1)


def test_the_order_is_the_same_for_ever(fixed: BinarizedMNIST) -> None:
    first = np.concatenate([indices(x) for x in train_loader(1000, 100)])
    assert hashlib.sha256(first.astype("<i8").tobytes()).hexdigest()[:16] == "ff16af1ddfc968c8"


def test_every_epoch_has_another_order() -> None:
    loader = train_loader(1000, 1000)
    epochs = np.array([next(indices(x) for x in loader) for _ in range(20)])  # (20, 1000)
    assert len({tuple(order) for order in epochs}) == 20
    # the number of images that keep their place from one epoch to the next is Poisson of mean 1
    assert (epochs[1:] == epochs[:-1]).sum() < 19 + largest_z_of_chance(1) * 19**0.5


@given(count=st.integers(1, 300), batch_size=st.integers(1, 100), skip=st.integers(0, 700), is_dynamic=st.booleans())
def test_a_loader_that_starts_later_serves_what_would_have_come(
    count: int, batch_size: int, skip: int, is_dynamic: bool
) -> None:
    images = (np.random.RandomState(count).randint(0, 256, (count, 12))).astype(np.uint8)

    def loader(position: int = 0) -> TrainLoader:
        return TrainLoader(images=images, batch_size=batch_size, seed=3, dynamic=is_dynamic, position=position)

    def take(stream: TrainLoader, number: int) -> list[torch.Tensor]:
        batches: list[torch.Tensor] = []
        while len(batches) < number:
            batches += list(stream)
        return batches[:number]

    skip %= 3 * len(loader())
    expected = take(loader(), skip + 5)[skip:]
    assert all(map(torch.equal, take(loader(skip), 5), expected))
    restored = loader()
    restored.load_state_dict(loader(skip).state_dict())
    assert all(map(torch.equal, take(restored, 5), expected))


@given(world_size=st.integers(1, 4), batch_size=st.integers(1, 40), is_dynamic=st.booleans())
def test_ranks_share_each_global_batch_in_the_order_of_a_single_process(
    world_size: int, batch_size: int, is_dynamic: bool
) -> None:
    images = np.random.RandomState(0).randint(0, 256, (333, 12)).astype(np.uint8)
    ranks = [
        TrainLoader(images=images, batch_size=batch_size, seed=0, dynamic=is_dynamic, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    alone = TrainLoader(images=images, batch_size=batch_size * world_size, seed=0, dynamic=is_dynamic)
    assert {len(rank) for rank in ranks} == {333 // (batch_size * world_size) if world_size > 1 else len(alone)}
    for parts, whole in zip(zip(*ranks, strict=True), alone, strict=False):
        assert {len(part) for part in parts} == {len(whole) // world_size}
        assert torch.equal(torch.cat(parts), whole)


@given(count=st.integers(60, 400), world_size=st.integers(1, 4), batch_size=st.integers(2, 50), dynamic=st.booleans())
def test_evaluation_serves_all_images_in_order_on_any_number_of_ranks(
    count: int, world_size: int, batch_size: int, dynamic: bool
) -> None:
    images = np.random.RandomState(0).randint(0, 256, (count, 12)).astype(np.uint8)
    images = images if dynamic else images & np.uint8(1)

    def loader(rank: int) -> EvalLoader:
        return EvalLoader(
            images=images,
            batch_size=batch_size,
            seed=0,
            split="val",
            dynamic=dynamic,
            rank=rank,
            world_size=world_size,
        )

    ranks = [list(loader(rank)) for rank in range(world_size)]
    assert {len(batches) for batches in ranks} == {len(loader(0))}, "equally many, or ranks would wait for each other"
    assert all(1 <= len(part) <= batch_size for batches in ranks for part in batches)
    served = torch.cat([torch.cat(parts) for parts in zip(*ranks, strict=True)])
    assert len(served) == count
    if not dynamic:
        assert torch.equal(served, torch.from_numpy(images).float())


def test_dynamic_bits_are_redrawn_at_every_access_on_all_splits(dynamic: BinarizedMNIST) -> None:
    for split in ALL_SPLITS:
        loader = dynamic.eval_loader(split)
        first, second = next(iter(loader)), next(iter(loader))
        grey = torch.from_numpy((dynamic.images(split)[: len(first)] - np.uint8(1)) < 254)  # 0 becomes 255
        assert torch.equal(first[~grey], second[~grey])
        p = dynamic.images(split)[: len(first)][grey.numpy()] / 255
        differences = (first[grey] != second[grey]).sum().item()
        chance = 2 * p * (1 - p)  # that two independent draws differ
        assert abs(differences - chance.sum()) < largest_z_of_chance(3) * np.sqrt((chance * (1 - chance)).sum())


def test_dynamic_bits_of_the_same_image_differ_between_epochs() -> None:
    images = np.full((10, 784), 128, np.uint8)
    loader = TrainLoader(images=images, batch_size=10, seed=0, dynamic=True)
    first, second = next(iter(loader)), next(iter(loader))
    assert abs((first != second).float().mean().item() - 0.5) < largest_z_of_chance(1) * 0.5 / 7840**0.5


def test_a_batch_of_100_is_ready_in_well_under_300_microseconds(fixed: BinarizedMNIST) -> None:
    loader, seconds = iter(fixed.train_dataloader()), []
    for _ in range(500):
        start = time.perf_counter()
        next(loader)
        seconds.append(time.perf_counter() - start)
    assert np.median(seconds) < 150e-6  # the median, as other work on the machine takes the rest


# --- in Lightning: an interrupted run sees what it would have seen


class FewImages(BinarizedMNIST):
    """Ten batches of training images and two of validation images."""

    def images(self, split: Split) -> np.ndarray:
        return super().images(split)[:200]


class Recorder(pl.LightningModule):
    """Writes down every batch it is given; its weights depend on all of them and their order."""

    def __init__(self, fail_at: int = -1) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(784))
        self.fail_at = fail_at
        self.trained: list[str] = []
        self.validated: dict[int, list[str]] = {}

    def training_step(self, x: torch.Tensor, batch_idx: int) -> torch.Tensor:
        if self.global_step == self.fail_at:
            raise RuntimeError("the machine is on fire")
        self.trained.append(hashlib.sha256(x.numpy().tobytes()).hexdigest())
        return ((self.weight - x.mean(0)) ** 2).sum()

    def validation_step(self, x: torch.Tensor, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            digest = hashlib.sha256(x.numpy().tobytes()).hexdigest()
            self.validated.setdefault(self.global_step, []).append(digest)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


class SaveOnException(Callback):
    def __init__(self, path: Path) -> None:
        self.path = path

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        trainer.save_checkpoint(self.path)


@pytest.fixture(scope="module")
def few_images(data_dir: Path) -> BinarizedMNIST:
    return loaded(FewImages(data_dir, binarization="dynamic", batch_size=20, eval_batch_size=100))


@pytest.fixture
def run(few_images: BinarizedMNIST, tmp_path: Path) -> Any:
    """Train on few images; answers with the module and its trainer."""

    def fit(
        ckpt_path: Path | None = None, fail_at: int = -1, callbacks: list[Callback] | None = None, **options: Any
    ) -> tuple[Recorder, pl.Trainer]:
        trainer = pl.Trainer(
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=bool(callbacks),
            callbacks=callbacks,
            default_root_dir=tmp_path,
            num_sanity_val_steps=1,
            **options,
        )
        module = Recorder(fail_at)
        trainer.fit(module, datamodule=few_images, ckpt_path=ckpt_path, weights_only=True)
        return module, trainer

    return fit


@pytest.mark.filterwarnings("error:.*not resumable.*")
@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 24, "check_val_every_n_epoch": None, "val_check_interval": 4},
        {"max_epochs": 2, "val_check_interval": 5},
        {"max_steps": 18, "limit_train_batches": 7},
    ],
    ids=["steps", "epochs", "limited epochs"],
)
def test_a_run_resumed_from_any_step_sees_the_batches_of_an_uninterrupted_one(
    run: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    every_step = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    whole, trainer = run(callbacks=[every_step], **options)
    steps = trainer.global_step
    assert len(set(whole.trained)) == steps
    for step in (3, 7, 8, 10, 13):
        resumed, _ = run(tmp_path / f"step={step}.ckpt", **options)
        assert resumed.trained == whole.trained[step:], f"from step {step}"
        assert torch.equal(resumed.weight, whole.weight)
        later = {at: batches for at, batches in whole.validated.items() if at > step}
        assert {at: batches for at, batches in resumed.validated.items() if at > step} == later
        assert resumed.validated.get(step, whole.validated.get(step)) == whole.validated.get(step)


def test_a_run_that_max_steps_ended_within_an_epoch_goes_on_with_that_epoch(run: Any, tmp_path: Path) -> None:
    whole, _ = run(max_steps=27)
    part, trainer = run(max_steps=13)
    trainer.save_checkpoint(tmp_path / "13.ckpt")
    resumed, _ = run(tmp_path / "13.ckpt", max_steps=27)
    assert part.trained + resumed.trained == whole.trained
    assert torch.equal(resumed.weight, whole.weight)


def test_a_run_that_ended_with_an_epoch_goes_on_with_the_next(run: Any, tmp_path: Path) -> None:
    whole, _ = run(max_epochs=3)
    part, trainer = run(max_epochs=2)
    trainer.save_checkpoint(tmp_path / "2.ckpt")
    resumed, _ = run(tmp_path / "2.ckpt", max_epochs=3)
    assert part.trained + resumed.trained == whole.trained
    assert torch.equal(resumed.weight, whole.weight)


def test_a_batch_whose_step_failed_is_served_again(run: Any, tmp_path: Path) -> None:
    whole, _ = run(max_steps=16)
    with pytest.raises(RuntimeError, match="on fire"):
        run(max_steps=16, fail_at=13, callbacks=[SaveOnException(tmp_path / "fire.ckpt")])
    resumed, _ = run(tmp_path / "fire.ckpt", max_steps=16)
    assert resumed.trained == whole.trained[13:]
    assert torch.equal(resumed.weight, whole.weight)


# --- files


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions do not bind root: be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that nobody, too, may enter; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def raw_folder(folder: Path) -> Path:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for archive in ARCHIVES:
        shutil.copyfile(REPOSITORY_DATA / "MNIST" / "raw" / archive, raw / archive)
    return raw


def test_a_read_only_checkout_is_only_read(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, data = open_folder / "checkout", open_folder / "data"
    raw_folder(checkout).chmod(0o555)
    data.mkdir()
    data.chmod(0o777)
    monkeypatch.setattr(mnist_files, "REPOSITORY_DATA", checkout)
    before = names_in(checkout)
    with unprivileged():
        prepare_mnist(data)
    assert names_in(checkout) == before
    assert names_in(data / "MNIST" / "raw") == COMPLETE


def test_setup_in_another_folder_takes_the_archives_of_the_repository(tmp_path: Path) -> None:
    BinarizedMNIST(tmp_path, binarization="dynamic").setup("fit")
    assert names_in(tmp_path / "MNIST" / "raw") == COMPLETE


def test_several_may_prepare_the_same_folder_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(prepare_mnist, [tmp_path] * 3))
    assert names_in(tmp_path / "MNIST" / "raw") == COMPLETE
    prepare_mnist(tmp_path)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train-images-idx3-ubyte", "truncated"),
        ("t10k-images-idx3-ubyte", "altered"),
        ("t10k-labels-idx1-ubyte", "empty"),
    ],
)
def test_a_damaged_unpacked_file_is_unpacked_again(
    data_dir: Path, tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(data_dir, tmp_path / "copy")
    raw = tmp_path / "copy" / "MNIST" / "raw"
    good = (raw / name).read_bytes()
    flipped = good[:5000] + bytes([good[5000] ^ 1]) + good[5001:]
    (raw / name).write_bytes({"truncated": good[: len(good) // 2], "altered": flipped, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        prepare_mnist(tmp_path / "copy")
    assert [record.message for record in caplog.records] == [
        f"{raw / name} is truncated or altered: unpacking it again from its archive"
    ]
    assert (raw / name).read_bytes() == good
    assert names_in(raw) == COMPLETE


@pytest.mark.parametrize("damage", ["truncated", "altered", "another file"])
def test_a_damaged_archive_is_named_with_both_checksums(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MNIST, "mirrors", ["http://the.network.must.not.be.asked.invalid/"])
    raw = raw_folder(tmp_path)
    archive = raw / "t10k-images-idx3-ubyte.gz"
    good = archive.read_bytes()
    bad = {
        "truncated": good[:100_000],
        "altered": good[:5000] + bytes([good[5000] ^ 1]) + good[5001:],
        "another file": gzip.compress(b"hello"),
    }[damage]
    archive.write_bytes(bad)
    with pytest.raises(ValueError, match="MD5") as error:
        BinarizedMNIST(tmp_path).prepare_data()
    got, expected = hashlib.md5(bad).hexdigest(), dict(MNIST.resources)[archive.name]
    assert_one_sentence(error, str(archive), got, f"expected {expected}", f"{len(bad):,} bytes", "git checkout")
    assert names_in(raw) == sorted(ARCHIVES), "nothing was unpacked, nothing is left behind"
    assert archive.read_bytes() == bad


def test_a_missing_archive_that_cannot_be_downloaded_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr(mnist_files, "REPOSITORY_DATA", tmp_path / "nowhere")
    raw = raw_folder(tmp_path)
    (raw / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError) as error:
        BinarizedMNIST(tmp_path).prepare_data()
    assert_one_sentence(error, str(raw), "got no train-images-idx3-ubyte.gz", "downloading failed", "git checkout")
    assert names_in(raw) == sorted(set(ARCHIVES) - {"train-images-idx3-ubyte.gz"})


def test_a_missing_archive_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = partial(SimpleHTTPRequestHandler, directory=str(raw_folder(tmp_path / "server")))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *args: None)
    monkeypatch.setattr(mnist_files, "REPOSITORY_DATA", tmp_path / "nowhere")
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(MNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        prepare_mnist(tmp_path / "client")
        server.shutdown()
    assert names_in(tmp_path / "client" / "MNIST" / "raw") == COMPLETE


@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["not writable", "not readable"])
def test_a_folder_without_permission_is_one_sentence(open_folder: Path, mode: int) -> None:
    raw = raw_folder(open_folder)
    raw.chmod(mode)
    try:
        with unprivileged(), pytest.raises(PermissionError) as error:
            BinarizedMNIST(open_folder).prepare_data()
    finally:
        raw.chmod(0o755)
    assert_one_sentence(error, str(raw), "Permission denied", "data_dir")
    assert names_in(raw) == sorted(ARCHIVES)


def test_a_data_dir_below_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for binarization in ("fixed", "larochelle"):
        with pytest.raises(OSError, match="expected") as error:
            BinarizedMNIST(tmp_path / "file" / "data", binarization=binarization).prepare_data()
        assert_one_sentence(error, str(tmp_path / "file" / "data"))


def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device", "train-images-idx3-ubyte")

    raw = raw_folder(tmp_path)
    monkeypatch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        prepare_mnist(tmp_path)
    assert_one_sentence(error, str(raw))
    assert names_in(raw) == sorted(ARCHIVES)


def test_an_interrupt_during_unpacking_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(url: str, download_root: str, **kwargs: object) -> None:
        Path(download_root, "train-images-idx3-ubyte").write_bytes(b"half")
        raise KeyboardInterrupt

    raw = raw_folder(tmp_path)
    monkeypatch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_mnist(tmp_path)
    assert names_in(raw) == sorted(ARCHIVES)


def test_a_kill_during_unpacking_leaves_nothing_under_a_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(url: str, download_root: str, **kwargs: object) -> None:
        Path(download_root, "train-images-idx3-ubyte").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    raw = raw_folder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", killed)
        child = os.fork()
        if child == 0:
            try:
                prepare_mnist(tmp_path)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (scratch,) = (path for path in raw.iterdir() if path.name not in ARCHIVES)
    assert scratch.name.startswith(".unpacking-")
    prepare_mnist(tmp_path)
    assert scratch.exists(), "it is young and may be in use"
    assert sorted(path.name for path in raw.iterdir() if path != scratch) == COMPLETE
    os.utime(scratch, (0, 0))
    (raw / "train-labels-idx1-ubyte").unlink()
    prepare_mnist(tmp_path)
    assert names_in(raw) == COMPLETE


# --- larochelle


def write_amat(path: Path, bits: np.ndarray, end: bytes = b"\n") -> None:
    table = np.full((*bits.shape, 2), ord(" "), np.uint8)
    table[:, :, 0] = ord("0") + bits
    lines = table.reshape(len(bits), -1)[:, :-1]
    ends = np.broadcast_to(np.frombuffer(end, np.uint8), (len(bits), len(end)))
    path.write_bytes(np.concatenate([lines, ends], axis=1).tobytes())


@pytest.fixture(scope="module")
def larochelle_dir(tmp_path_factory: pytest.TempPathFactory, fixed: BinarizedMNIST) -> Path:
    folder = tmp_path_factory.mktemp("larochelle")
    (folder / "larochelle").mkdir()
    for split, name in zip(ALL_SPLITS, LAROCHELLE_ROWS, strict=True):
        write_amat(folder / "larochelle" / f"binarized_mnist_{name}.amat", fixed.images(split))
    return folder


@pytest.fixture
def larochelle_copy(larochelle_dir: Path, tmp_path: Path) -> Path:
    shutil.copytree(larochelle_dir, tmp_path / "copy", copy_function=os.link)
    return tmp_path / "copy"


def test_larochelle_reads_the_bits_that_were_written(larochelle_dir: Path, fixed: BinarizedMNIST) -> None:
    data = loaded(BinarizedMNIST(larochelle_dir, binarization="larochelle"))
    for split in ALL_SPLITS:
        assert np.array_equal(data.images(split), fixed.images(split))
    assert data.checksum == FIXED_BITS_SHA256
    assert torch.equal(data.mean, fixed.mean)
    assert torch.equal(next(iter(data.train_dataloader())), next(iter(fixed.train_dataloader())))


@pytest.mark.parametrize("end", [b"\r\n", b" \n"])
def test_larochelle_does_not_mind_other_white_space(larochelle_copy: Path, fixed: BinarizedMNIST, end: bytes) -> None:
    path = larochelle_copy / "larochelle" / "binarized_mnist_test.amat"
    path.unlink()
    write_amat(path, fixed.images("test"), end)
    assert np.array_equal(read_larochelle(larochelle_copy)[SPLITS["test"]], fixed.images("test"))


def test_larochelle_names_the_missing_file_and_its_address(larochelle_copy: Path) -> None:
    (larochelle_copy / "larochelle" / "binarized_mnist_valid.amat").unlink()
    for method in ("prepare_data", "mean"):
        with pytest.raises(FileNotFoundError) as error:
            getattr(BinarizedMNIST(larochelle_copy, binarization="larochelle"), method)()
        assert_one_sentence(error, "got no binarized_mnist_valid.amat", "http://www.cs.toronto.edu/")


def damaged_amat(good: np.ndarray, damage: str, path: Path) -> str:
    """Write a damaged file; answers with what the error must say."""
    if damage == "a line too few":
        write_amat(path, good[:-1])
        return "has 9,999 lines of 784 values, expected 10,000 lines of 784"
    if damage == "a column too few":
        write_amat(path, good[:, :-1])
        return "has 10,000 lines of 783 values, expected 10,000 lines of 784"
    if damage == "truncated":
        write_amat(path, good)
        os.truncate(path, 9_999 * 1568 + 200)
        return "has 10,000 lines of 100 to 784 values, expected 10,000 lines of 784"
    if damage == "empty":
        path.touch()
        return "has 0 lines of 0 values, expected 10,000 lines of 784"
    write_amat(path, good + 7 * (np.arange(good.size).reshape(good.shape) == 784 * 5000 + 3).astype(np.uint8))
    return "line 5001 value 4 is b'7 ', expected 0 or 1"


@pytest.mark.parametrize("damage", ["a line too few", "a column too few", "truncated", "empty", "another digit"])
def test_larochelle_refuses_a_file_of_wrong_shape_or_content(
    larochelle_copy: Path, fixed: BinarizedMNIST, damage: str
) -> None:
    path = larochelle_copy / "larochelle" / "binarized_mnist_valid.amat"
    path.unlink()
    said = damaged_amat(fixed.images("val"), damage, path)
    with pytest.raises(ValueError, match="expected") as error:
        read_larochelle(larochelle_copy)
    assert_one_sentence(error, str(path), said, "http://www.cs.toronto.edu/")


# --- arguments


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"binarization": "static"}, "binarization is 'static', expected one of fixed, dynamic, larochelle"),
        ({"batch_size": 0}, "batch_size is 0, expected a whole number from 1 to 50,000"),
        ({"batch_size": -5}, "batch_size is -5, expected a whole number from 1 to 50,000"),
        ({"batch_size": 2.5}, "batch_size is 2.5, expected a whole number"),
        ({"batch_size": True}, "batch_size is True, expected a whole number"),
        ({"batch_size": 50_001}, "batch_size is 50001, expected a whole number from 1 to 50,000"),
        ({"eval_batch_size": 0}, "eval_batch_size is 0, expected a whole number from 1 to 10,000"),
        ({"seed": "zero"}, "seed is 'zero', expected a whole number"),
    ],
)
def test_an_impossible_argument_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        BinarizedMNIST(**options)
    assert_one_sentence(error, said)


def test_more_ranks_than_a_step_has_images_for_are_refused() -> None:
    with pytest.raises(ValueError, match="expected") as error:
        train_loader(100, 30, world_size=4)
    assert_one_sentence(error, "batch_size 30 on 4 ranks takes 120 images per step, expected at most 100")


def test_a_loader_of_empty_batches_is_refused(fixed: BinarizedMNIST) -> None:
    for make in (lambda: fixed.eval_loader("train", batch_size=0), lambda: train_loader(100, 0)):
        with pytest.raises(ValueError, match="expected") as error:
            make()
        assert_one_sentence(error, "batch_size is 0, expected 1 or more")


def test_data_modules_of_one_process_share_the_fixed_bits(fixed: BinarizedMNIST, data_dir: Path) -> None:
    another = BinarizedMNIST(data_dir, seed=1)
    assert np.shares_memory(another.images("test"), BinarizedMNIST(data_dir).images("test"))
    assert np.array_equal(another.images("test"), fixed.images("test"))


def test_bits_from_a_changed_stream_are_refused(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist_files, "BINARIZATION_SEED", 2017)
    with pytest.raises(RuntimeError) as error:
        BinarizedMNIST(data_dir).setup("fit")
    assert_one_sentence(error, f"expected {FIXED_BITS_SHA256}", "numpy")
