"""The safetensors format: named tensors and text in a file that holds no code.

8 bytes give the length of the header, little-endian. The header is JSON: name -> {dtype, shape, data_offsets}, the
offsets counted from the end of the header; `__metadata__` maps text to text. Then come the numbers, row-major and
little-endian, without gaps. Described at https://huggingface.co/docs/safetensors, which these files can be read with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from releg.files import write_atomically

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
LONGEST_HEADER = 100_000_000  # bytes, the format's own limit
USE = "use a whole .safetensors file"


def write(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a file; its name appears when it is whole."""
    write_atomically(Path(path), encode(tensors, metadata))


def encode(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The content of a file; what `read` returns gives the same bytes again."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    contents, end = [], 0
    for name, tensor in tensors.items():
        data = _to_bytes(tensor)
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + len(data)],
        }
        contents.append(data)
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that numbers are aligned
    return len(text).to_bytes(8, "little") + text + b"".join(contents)


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors, on the CPU, and metadata; ValueError, with a sentence, if the file has another format or is damaged."""
    content = Path(path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(LONGEST_HEADER, len(content) - 8):
        raise ValueError(f"{path} ends within its header, expected a safetensors file; {USE}")
    try:
        header = json.loads(content[8 : 8 + length])
        metadata = dict(header.pop("__metadata__", {}))
        numbers = memoryview(content)[8 + length :]
        tensors = {name: _tensor(entry, numbers) for name, entry in header.items()}
        _check_offsets([entry["data_offsets"] for entry in header.values()], len(numbers))
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        cause = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} is damaged ({cause}), expected a safetensors file; {USE}") from error
    return tensors, metadata


def _to_bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().to("cpu").contiguous().flatten()
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _tensor(entry: Mapping[str, Any], numbers: memoryview) -> Tensor:
    begin, end = entry["data_offsets"]
    dtype, shape = TYPES[entry["dtype"]], entry["shape"]
    if not 0 <= begin <= end <= len(numbers):
        raise ValueError(f"offsets {begin} to {end} lie outside its {len(numbers)} bytes of numbers")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{end - begin} bytes do not make a tensor of shape {shape} and type {entry['dtype']}")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(numbers[begin:end]), dtype=dtype).reshape(shape)


def _check_offsets(offsets: list[list[int]], size: int) -> None:
    """All bytes belong to one tensor each."""
    position = 0
    for begin, end in sorted(offsets):
        if begin != position:
            raise ValueError(f"byte {position} of the numbers belongs to no tensor, or to two")
        position = end
    if position != size:
        raise ValueError(f"{size - position} bytes follow the last tensor")
