"""Binarised Fashion-MNIST."""

from torchvision.datasets import FashionMNIST

from lightning_modules.data_parts.mnist_family import MNISTFamily


class BinarizedFashionMNIST(MNISTFamily):
    """Fashion-MNIST with binary pixels: 50,000 training, 10,000 validation and 10,000 test images as (B, 784) float32.

    Args:
        data_dir: folder that holds FashionMNIST/raw; torchvision downloads the archives to it if they are missing. By
            default the repository's own `data`.
    """

    dataset = FashionMNIST
