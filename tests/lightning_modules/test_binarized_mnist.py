from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_lightning.callbacks import ModelCheckpoint
from scipy_free_normal import two_sided_z  # placeholder
from torchvision.datasets import MNIST

from lightning_modules import mnist_files
from lightning_modules.binarized_mnist import SPLITS, BinarizedMNIST, EvalLoader, Split, TrainLoader, redraw
from lightning_modules.mnist_files import (
    FIXED_BITS_SHA256,
    LAROCHELLE_ROWS,
    REPOSITORY_DATA,
    UNPACKED_SHA256,
    fixed_bits,
    prepare_mnist,
    read_pixels,
)
