"""Damaged objects of every kind (``object_kinds``), shown as ``lancewal inspect`` shows them: by the decoders of the services.

What comes out is what the bytes say, or an error that names the object; in memory and steps that its bytes bound.
"""

from __future__ import annotations

import json
import re
import struct
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.cli.inspect import as_json, as_text
from lancewal_core.cli.stored_object import SHOWERS, inspect_object
from lancewal_core.errors import ObjectCorrupt, ObjectMissing
from lancewal_core.names import paths
from lancewal_core.names.paths import FlushFile
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.object_kinds import KINDS, ObjectKind
from lancewal_core.store.obstore import open_store
from lancewal_flusher.tasks import parcel as task_parcel
from lancewal_flusher.tasks.parcel import OpenParcel, send
from tests.fuzz.test_bounds import MEMORY_A_BYTE, STEPS_A_BYTE, steps_of
from tests.support.fuzzing import damaged, fuzz, memory_bound, outcome
from tests.support.stored_objects import SOUND
from tests.twins.memory_store import MemoryStore

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def index_of(body: bytes) -> bytes:
    return body + b"\xfd\x07" + struct.pack("<I", google_crc32c.value(body))


def page_of(content: bytes) -> bytes:
    """Head and records, both of any content; the head is as long as the sound page's, as far as there is so much."""
    length = min(int.from_bytes(SOUND["state page"].objects[0][:4], "little"), len(content))
    body, checksum = content[: max(length - 6, 0)], google_crc32c.value(content[: max(length - 6, 0)])
    return struct.pack("<I", len(body) + 6) + body + b"\xfd\x07" + struct.pack("<I", checksum) + content[length:]


def segment_of(content: bytes, kind: str = "segment") -> bytes:
    """Body and table, both of any content; the footer says where the first ends, as that of the sound one does."""
    sound = SOUND[kind].objects[0]
    body_length = min(int.from_bytes(sound[-28:-20], "little"), len(content))
    table = content[body_length:]
    checked = struct.pack("<QIII", body_length, len(table), google_crc32c.value(table), 1)
    return content + checked + struct.pack("<I", google_crc32c.value(checked)) + b"LWAL"


def catalog_of(content: bytes) -> bytes:
    return content + b',"crc32c":%d}' % google_crc32c.value(content)


def snapshot_of(content: bytes) -> bytes:
    try:
        canonical = json.dumps(json.loads(content), sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        canonical = content
    return b'{"flush": %s, "crc32c": %d}' % (content, google_crc32c.value(canonical))


Sealing = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]
SEALED: dict[str, Sealing] = {
    "state page": (lambda data: data[4:], page_of),
    "history page": (lambda data: data[:-6], index_of),
    "segment": (lambda data: data[:-28], segment_of),
    "bundle": (lambda data: data[:-28], partial(segment_of, kind="bundle")),
    "key catalog": (lambda data: data[: data.rindex(b',"crc32c"')], catalog_of),
    "flush": (lambda data: json.dumps(json.loads(data)["flush"]).encode(), snapshot_of),
}
"""Kinds with a checksum inside: what it is made of, and the object with one that matches."""
NOT_DECODED = {
    "parcel": "its sha256 is checked first: below",
    "probe": "compared with what was put, as a whole",
}


MEMORY = 64 << 20
"""Bytes for anything.  What other threads of the process take meanwhile counts too: 29 MB was seen once."""


def inspected(store: MemoryStore, key: str) -> str | None:
    """What is shown; None where the object says so of itself."""
    try:
        found = inspect_object(store, key)
    except ObjectMissing as error:
        raise ObjectCorrupt(str(error)) from error
    return as_text(found) + json.dumps(as_json(found))


def judge(key: str, data: bytes, beside: tuple[tuple[str, bytes], ...] = ()) -> None:
    store = MemoryStore(SystemClock())
    for other, content in ((key, data), *beside):
        store.put_if_absent(other, content)
    with memory_bound(MEMORY + MEMORY_A_BYTE * len(data)):
        shown = outcome(lambda: inspected(store, key), key)
    assert shown is None or _CONTROL.search(shown) is None
    # As a person reads it takes steps beside the decoder's own.
    steps = steps_of(lambda _: inspect_object(store, key), data, key)
    assert steps <= 2 * STEPS_A_BYTE * len(data) + 5000, f"{len(data)} bytes took {steps} steps"


def targets() -> list[ObjectKind]:
    return [kind for kind in KINDS if kind.name not in NOT_DECODED]


def test_every_kind_has_a_target() -> None:
    assert {kind.name for kind in KINDS} - SHOWERS.keys() == NOT_DECODED.keys()
    assert {kind.name for kind in targets()} <= SOUND.keys()


@pytest.mark.parametrize("kind", targets(), ids=lambda kind: kind.name)
def test_damaged_objects(kind: ObjectKind) -> None:
    sound = SOUND[kind.name]
    unsealed, sealed = SEALED.get(kind.name, (bytes, bytes))
    for data in sound.objects:
        assert sealed(unsealed(data)) == data or kind.name == "flush"
    judge(sound.key, sealed(unsealed(sound.objects[0])), sound.beside)
    inner = [unsealed(data) for data in sound.objects]

    @fuzz(60)
    @given(damaged(sound.objects) | damaged(inner).map(sealed) | st.binary(max_size=100).map(sealed))
    def run(data: bytes) -> None:
        judge(sound.key, data, sound.beside)

    run()


@pytest.mark.parametrize("name", ["deleted keys", "patches"])
def test_a_side_file_beside_a_damaged_manifest(name: str) -> None:
    """What it is compared with may be anything, too."""
    sound, manifest = SOUND[name], SOUND["flush"]
    where = paths.parse_flush_file(sound.key)
    assert where is not None
    key = paths.flush_file(where[0], FlushFile.MANIFEST)
    unsealed, sealed = SEALED["flush"]

    @fuzz(30)
    @given(damaged([unsealed(data) for data in manifest.objects]).map(sealed))
    def run(data: bytes) -> None:
        store = MemoryStore(SystemClock())
        store.put_if_absent(key, data)
        store.put_if_absent(sound.key, sound.objects[0])
        outcome(lambda: inspected(store, sound.key), key.rpartition("/")[0])

    run()


def test_damaged_parcels() -> None:
    """Nothing but what was sent is unpickled."""
    pool = ThreadTasks()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(task_parcel, "INLINE_BYTES_MAX", 0)
        store = open_store(folder)
        parcel = send(store, pool, ["x" * 50, "y" * 50], "p1")
        part = Path(folder) / paths.parcel_part("p1", 0)
        whole = part.read_bytes()

        @fuzz(60)
        @given(damaged([whole], in_place=True))
        def run(data: bytes) -> None:
            part.write_bytes(data)
            read = outcome(lambda: OpenParcel(store, pool, parcel).load(0), paths.parcel_part("p1", 0))
            assert read == "x" * 50 or (read is None and data != whole)

        run()
    pool.close()
