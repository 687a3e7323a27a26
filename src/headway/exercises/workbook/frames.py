"""Messages between the workbook and the process an answer runs in: a JSON header and arrays, never objects.

A frame is two lengths (8 bytes each, little-endian), the header as JSON, and the arrays as safetensors.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from safetensors.numpy import load, save

_LENGTHS = struct.Struct("<QQ")
LARGEST = 256 * 2**20  # bytes of either part: far more than any exercise asks for

Read = Callable[[int], bytes]


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """A frame as bytes.

    >>> import io
    >>> header, arrays = unpack(io.BytesIO(pack({"do": "call"}, {"x": np.ones((2, 3))})).read)
    >>> header["do"], arrays["x"].shape
    ('call', (2, 3))
    """
    text = json.dumps(header).encode()
    data = save({name: np.array(array, order="C") for name, array in (arrays or {}).items()})
    return _LENGTHS.pack(len(text), len(data)) + text + data


def unpack(read: Read) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The next frame from `read(count)`, which returns exactly `count` bytes or fewer at the end.

    Raises EOFError when the stream ends or holds something else.
    """
    lengths = read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        raise EOFError("no further frame")
    text, data = _LENGTHS.unpack(lengths)
    if max(text, data) > LARGEST:
        raise EOFError("not a frame")
    header, body = read(text), read(data)
    if len(header) < text or len(body) < data:
        raise EOFError("a frame is cut off")
    return json.loads(header), load(body)
