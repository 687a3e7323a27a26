"""Frames carry what was put in, and refuse what is none."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from headway.exercises.workbook.frames import LARGEST, pack, unpack


def test_a_round_trip_keeps_header_arrays_and_order() -> None:
    arrays = {"visible/W_Q": np.arange(6.0).reshape(2, 3).T, "number": np.array(2.5), "none": np.zeros((0, 4))}
    stream = io.BytesIO(pack({"a": [1, "二"]}, arrays) + pack({}))
    header, found = unpack(stream.read)
    assert header == {"a": [1, "二"]} and set(found) == set(arrays)
    assert all(np.array_equal(found[name], arrays[name]) and found[name].shape == arrays[name].shape for name in arrays)
    assert unpack(stream.read) == ({}, {})


@pytest.mark.parametrize("data", [b"", b"short", pack({"a": 1})[:-1], struct.pack("<QQ", LARGEST + 1, 0), b"junk" * 20])
def test_what_is_no_frame_is_the_end(data: bytes) -> None:
    with pytest.raises(EOFError):
        unpack(io.BytesIO(data).read)
