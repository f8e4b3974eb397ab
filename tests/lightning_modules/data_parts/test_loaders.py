from __future__ import annotations

import hashlib
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.data_parts.loaders import EvalLoader, TrainLoader
from tests.lightning_modules.data_parts.small_archives import assert_one_sentence
from tests.releg.helpers import largest_z


def numbered(count: int, batch_size: int, **options: Any) -> TrainLoader:
    """Loader over `count` images whose first pixels spell their own index in base 2."""
    index = (np.arange(count)[:, None] >> np.arange(10)) & 1
    return TrainLoader(images=index.astype(np.uint8), batch_size=batch_size, **{"seed": 0, **options})


def indices(batch: torch.Tensor) -> list[int]:
    return [int(i) for i in batch.to(torch.int64) @ (1 << torch.arange(10))]


def grey(count: int) -> np.ndarray:
    return np.random.RandomState(count).randint(0, 256, (count, 12)).astype(np.uint8)


def take(loader: TrainLoader, number: int) -> list[torch.Tensor]:
    batches: list[torch.Tensor] = []
    while len(batches) < number:
        batches += list(loader)
    return batches[:number]


@given(count=st.integers(1, 300), batch_size=st.integers(1, 400), epochs=st.integers(1, 3))
def test_an_epoch_serves_every_image_exactly_once(count: int, batch_size: int, epochs: int) -> None:
    loader = numbered(count, batch_size)
    for _ in range(epochs):
        batches = [indices(x) for x in loader]
        assert len(batches) == len(loader)
        assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(loader) - 1)
        assert sorted(index for batch in batches for index in batch) == list(range(count))


def test_the_order_is_the_same_for_ever_and_another_one_for_another_seed() -> None:
    first, other = (np.concatenate([indices(x) for x in numbered(1000, 100, seed=seed)]) for seed in (0, 1))
    assert hashlib.sha256(first.astype("<i8").tobytes()).hexdigest()[:16] == "ff16af1ddfc968c8"
    assert not np.array_equal(first, other)


def test_every_epoch_has_another_order() -> None:
    loader = numbered(1000, 1000)
    epochs = np.array([next(indices(x) for x in loader) for _ in range(20)])  # (20, 1000)
    assert len({tuple(order) for order in epochs}) == 20
    # the number of images that keep their place from one epoch to the next is Poisson of mean 1
    assert (epochs[1:] == epochs[:-1]).sum() < 19 + largest_z(1) * 19**0.5


@given(count=st.integers(1, 300), batch_size=st.integers(1, 100), skip=st.integers(0, 700), redrawn=st.booleans())
def test_a_loader_that_starts_later_serves_what_would_have_come(
    count: int, batch_size: int, skip: int, redrawn: bool
) -> None:
    def loader(position: int = 0) -> TrainLoader:
        return TrainLoader(images=grey(count), batch_size=batch_size, seed=3, redrawn=redrawn, position=position)

    skip %= 3 * len(loader())
    expected = take(loader(), skip + 5)[skip:]
    assert all(map(torch.equal, take(loader(skip), 5), expected))
    restored = loader()
    restored.load_state_dict(loader(skip).state_dict())
    assert all(map(torch.equal, take(restored, 5), expected))


@given(world_size=st.integers(1, 4), batch_size=st.integers(1, 40), redrawn=st.booleans())
def test_ranks_share_each_global_batch_in_the_order_of_a_single_process(
    world_size: int, batch_size: int, redrawn: bool
) -> None:
    images = grey(333)
    ranks = [
        TrainLoader(images=images, batch_size=batch_size, seed=0, redrawn=redrawn, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    alone = TrainLoader(images=images, batch_size=batch_size * world_size, seed=0, redrawn=redrawn)
    assert {len(rank) for rank in ranks} == {333 // (batch_size * world_size) if world_size > 1 else len(alone)}
    for parts, whole in zip(zip(*ranks, strict=True), alone, strict=False):
        assert {len(part) for part in parts} == {len(whole) // world_size}
        assert torch.equal(torch.cat(parts), whole)


@given(count=st.integers(60, 400), world_size=st.integers(1, 4), batch_size=st.integers(2, 50))
def test_evaluation_serves_all_images_in_order_on_any_number_of_ranks(
    count: int, world_size: int, batch_size: int
) -> None:
    images = grey(count) & np.uint8(1)
    loaders = [
        EvalLoader(images=images, batch_size=batch_size, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    ranks = [list(loader) for loader in loaders]
    assert {len(batches) for batches in ranks} == {len(loaders[0])}, "or ranks would wait for each other"
    assert all(1 <= len(part) <= batch_size for batches in ranks for part in batches)
    served = torch.cat([torch.cat(parts) for parts in zip(*ranks, strict=True)])
    assert torch.equal(served, torch.from_numpy(images).float())


def test_redrawn_bits_of_the_same_image_differ_between_epochs() -> None:
    loader = TrainLoader(images=np.full((10, 784), 128, np.uint8), batch_size=10, seed=0, redrawn=True)
    first, second = take(loader, 2)
    p = 128 / 255
    chance = 2 * p * (1 - p)  # that two independent draws differ
    z = ((first != second).sum().item() - 7840 * chance) / (7840 * chance * (1 - chance)) ** 0.5
    assert abs(z) < largest_z(1)


@pytest.mark.parametrize(("redrawn", "bytes_per_pixel"), [(False, 1 + 4), (True, 1 + 1 + 1 + 1 + 4)])
def test_a_batch_takes_no_more_memory_than_itself_and_its_bits(redrawn: bool, bytes_per_pixel: int) -> None:
    loader = TrainLoader(images=np.zeros((5000, 784), np.uint8), batch_size=100, seed=0, redrawn=redrawn)
    batches = iter(loader)
    next(batches)  # draws the order of the epoch
    tracemalloc.start()
    x = next(batches)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * bytes_per_pixel * x.numel()


def test_more_ranks_than_a_step_has_images_for_are_refused() -> None:
    with pytest.raises(ValueError, match="expected") as error:
        numbered(100, 30, world_size=4)
    assert_one_sentence(error, "batch_size 30 on 4 ranks takes 120 images per step, expected at most 100")
