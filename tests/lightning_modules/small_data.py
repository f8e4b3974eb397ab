"""A data set in memory, so small that an epoch takes milliseconds."""

import numpy as np

from lightning_modules.binary_images import BinaryImages, Counts, Images

GREY = np.random.RandomState(0).randint(0, 256, (240, 12)).astype(np.uint8)
BITS = GREY & np.uint8(1)


class Small(BinaryImages):
    """Ten training batches and two validation batches of images of 3 x 4 pixels."""

    shape = (3, 4)
    counts = Counts(train=200, val=20, test=20)
    given = Images(BITS, GREY[:200])

    def load(self) -> Images:
        return self.given


def small(given: Images = Small.given, batch_size: int = 20, eval_batch_size: int = 10, seed: int = 0) -> Small:
    data = Small(batch_size, eval_batch_size, seed)
    data.given = given
    return data
