"""What every fuzz test shares: how many examples, how bytes are damaged, what may come out, how much memory it may take.

1. A normal run is the same each time (derandomised).  ``--fuzz-factor N`` runs N times the examples, with new seeds.
2. ``outcome`` lets two things pass: a value, or an error of ours that names the object.
3. ``memory_bound`` sees the process's resident peak and Arrow's allocations, so also what a library takes by itself.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, ObjectCorrupt
from lancewal_demo.stack.resident_memory import resident_bytes

T = TypeVar("T")

MESSAGE_MAX = 4000
"""A message that goes on without end hides what it says, and fills logs."""

_factor = 1
_NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-factor",
        type=int,
        default=1,
        help="fuzz tests: this many times the examples, with new seeds (default 1, the same examples in each run)",
    )


def configure(config: pytest.Config) -> None:
    global _factor
    _factor = config.getoption("--fuzz-factor")


def fuzz(examples: int) -> Callable[[T], T]:
    """Decorator of a ``given`` test: so many examples in a normal run."""
    limits: Any = settings(
        max_examples=examples * _factor,
        derandomize=_factor == 1,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    return limits  # type: ignore[no-any-return] # settings() is a decorator of any test


def outcome(decode: Callable[[], T], where: str) -> T | None:
    """What ``decode`` gives, None for the errors that are allowed; any other error goes through."""
    try:
        return decode()
    except (ObjectCorrupt, FormatUnknown) as error:
        message = str(error)
    assert where in message, f"the message does not name {where}: {message}"
    assert len(message) < MESSAGE_MAX, f"{len(message)} characters of message: {message[:400]}"
    return None


@st.composite
def damaged(draw: st.DrawFn, sources: Sequence[bytes], *, in_place: bool = False) -> bytes:
    """One of ``sources`` after up to four flips, overwrites, cuts or insertions; ``in_place``: of the same length."""
    source = draw(st.sampled_from(sources))
    data = bytearray(source)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        width = draw(st.integers(0, min(len(data), 64)))
        match draw(st.integers(0, 3 if in_place else 8)):
            case 0 | 8 if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                number = draw(st.sampled_from(_NUMBERS))
                form = draw(st.sampled_from(("<B", "<H", "<I", "<Q")))
                size = struct.calcsize(form)
                data[at : at + size] = struct.pack(form, number % (1 << (8 * size)))
            case 2:
                data[at : at + width] = bytes([draw(st.sampled_from((0, 0x20, 0x7F, 0xFF)))]) * width
            case 3:
                other = draw(st.sampled_from(sources))
                begin = draw(st.integers(0, len(other)))
                data[at : at + width] = other[begin : begin + width].ljust(width, b"\0")
            case 4:
                del data[at:]
            case 5:
                del data[at : at + width]
            case 6:
                data[at : at + width] = draw(st.binary(max_size=16))
            case _:
                data[at:at] = data[at : at + width]
    return bytes(data[: len(source)]) if in_place else bytes(data)


@contextlib.contextmanager
def memory_bound(limit: int) -> Iterator[None]:
    """Fail when the block raises this process's resident peak, or Arrow's, by more than ``limit`` bytes."""
    pool = pa.default_memory_pool()
    arrow_before, arrow_peak = pool.bytes_allocated(), pool.max_memory() or 0
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident_bytes("VmRSS")
    try:
        yield
    finally:
        taken = resident_bytes("VmHWM") - before
        peak = pool.max_memory() or 0
    assert taken <= limit, f"took {taken} bytes at the peak, allowed are {limit}"
    assert peak == arrow_peak or peak - arrow_before <= limit, f"Arrow took {peak - arrow_before} bytes"
