"""What somebody with the right to write into a table's folder may do there, one object at a time, and how it is undone."""

from __future__ import annotations

import json
import os
import random
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import google_crc32c
import pyarrow as pa

MIB = 1 << 20
_VERSION = re.compile(r"[0-9]{20}")
_U64_MAX = 2**64 - 1

KINDS: Mapping[str, str] = {
    "a segment": "wal/*/*.arrow",
    "a page of states": "pages/*/*/*/*.binpb",
    "a history page": "regions/*/*/*/history/*.binpb",
    "a flush's manifest": "flushes/*/manifest.json",
    "a flush's deletes": "flushes/*/deletes.arrow",
    "a flush's patches": "flushes/*/patches.arrow",
    "the contract": "contract/*.json",
    "a merge's record": "merges/*.json",
    "the key catalog": "keys/catalog/*.json",
    "a part of the key index": "keys/parts/*.arrow",
}
"""Where objects of each kind lie below ``_lancewal/``."""

Damage = Callable[[bytes, Path, Path, random.Random], bytes]
"""New content of an object: from its own, its path, the root of another table, and chance."""


def flipped(data: bytes, _path: Path, _other: Path, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def cut(data: bytes, _path: Path, _other: Path, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def deep(_data: bytes, _path: Path, _other: Path, rng: random.Random) -> bytes:
    return rng.choice([b"[", b'{"a":']) * 200_000


def noise(_data: bytes, _path: Path, _other: Path, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(1, MIB))


def of_another_table(data: bytes, path: Path, other: Path, rng: random.Random) -> bytes:
    """The object of the same kind there, as it is."""
    kind = next(pattern for pattern in KINDS.values() if path.match(pattern))
    found = sorted((other / "_lancewal").glob(kind))
    return rng.choice(found).read_bytes() if found else data[::-1]


def of_another_place(data: bytes, path: Path, _other: Path, rng: random.Random) -> bytes:
    """Another object of the same kind of this table."""
    kind = next(pattern for pattern in KINDS.values() if path.match(pattern))
    root = next(parent for parent in path.parents if parent.name == "_lancewal")
    found = [one for one in sorted(root.glob(kind)) if one != path]
    return rng.choice(found).read_bytes() if found else data[::-1]


def bomb(_data: bytes, _path: Path, _other: Path, rng: random.Random) -> bytes:
    """An Arrow stream of a few kilobytes that says it holds a quarter of a GiB."""
    return zeros(rng.choice(["zstd", "lz4"]))


@cache
def zeros(codec: str) -> bytes:
    """An Arrow stream of one row with 256 MiB of zeros."""
    size = 1 << 28
    text = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(struct.pack("<2q", 0, size)), pa.py_buffer(bytes(size))]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, pa.schema([("k", pa.large_string())]), options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_batch(pa.record_batch([text], names=["k"]))
    return bytes(sink.getvalue().to_pybytes())


DAMAGES: Mapping[str, Damage] = {
    "flipped": flipped,
    "cut": cut,
    "deep": deep,
    "noise": noise,
    "of another table": of_another_table,
    "of another place": of_another_place,
    "a bomb": bomb,
}
HUGE = "huge"
"""Three GiB, of which the file system stores nothing."""
LED_ELSEWHERE = "led elsewhere"
"""A flush that names a file of another table, with a checksum that matches."""
STRAY = "put in front"
"""Garbage under the number that comes next."""
ACTS = (*DAMAGES, HUGE, LED_ELSEWHERE, STRAY)


@dataclass(frozen=True, slots=True)
class Changed:
    """An object that is not what lancewal wrote; ``whole`` is None where it had written none."""

    what: str
    how: str
    path: Path
    key: str
    whole: bytes | None

    def undo(self) -> None:
        """As it was; what a collector has deleted meanwhile stays deleted."""
        if self.whole is None:
            with suppress(FileNotFoundError):
                self.path.unlink()
        elif self.path.exists():
            put(self.path, self.whole)


def put(path: Path, data: bytes) -> None:
    """Whole or not at all, as a store does it."""
    made = path.with_name(f".{path.name}.hostile")
    made.write_bytes(data)
    os.replace(made, path)


def change(root: Path, other: Path, what: str, how: str, rng: random.Random) -> Changed | None:
    """Do ``how`` to an object of the kind ``what``, most often the newest; None where there is nothing to do it to."""
    found = sorted((root / "_lancewal").glob(KINDS[what]))
    if not found:
        return None
    try:
        path = rng.choice(found) if rng.random() < 0.3 else max(found, key=lambda one: one.stat().st_mtime_ns)
        data = path.read_bytes()
        if how == STRAY:
            return _stray(root, what, path, rng)
        if how == HUGE:
            _huge(path, data)
        elif how == LED_ELSEWHERE:
            if what != "a flush's manifest" or not json.loads(data)["flush"]["fragments"]:
                return None
            put(path, led_elsewhere(data, other))
        else:
            put(path, DAMAGES[how](data, path, other, rng))
    except FileNotFoundError:  # collected meanwhile
        return None
    return Changed(what, how, path, path.relative_to(root).as_posix(), data)


def led_elsewhere(data: bytes, other: Path) -> bytes:
    """A manifest of a flush that names a data file of the table at ``other``."""
    content = json.loads(data)["flush"]
    name = min(path.name for path in (other / "data").iterdir())
    for fragment in content["fragments"]:
        for file in fragment["files"]:
            file["path"] = f"../../{other.name}/data/{name}"
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({"flush": content, "crc32c": google_crc32c.value(canonical)}).encode()


def _huge(path: Path, data: bytes) -> None:
    made = path.with_name(f".{path.name}.hostile")
    made.write_bytes(data)
    os.truncate(made, 3 << 30)
    os.replace(made, path)


def _stray(root: Path, what: str, path: Path, rng: random.Random) -> Changed | None:
    """Newest are the lowest numbers, but for segments."""
    if what not in ("a segment", "a page of states", "the contract", "the key catalog"):
        return None
    siblings = [one for one in path.parent.iterdir() if _VERSION.match(one.name)]
    number = max(int(one.name[:20]) for one in siblings) + 1 if what == "a segment" else 0
    number = number or min(int(one.name[:20]) for one in siblings) - 1
    place = path.with_name(f"{number:020d}{path.suffix}")
    try:
        with place.open("xb") as file:
            file.write(rng.choice([b"", b"{" * 1_000, rng.randbytes(3_000)]))
    except FileExistsError:
        return None
    return Changed(what, STRAY, place, place.relative_to(root).as_posix(), None)
