"""The keys of a delta, loaded by one process of an executor and mapped into memory by the others.

Guarantees
 1. A file is complete or absent.  Its name is a digest of what it was loaded from, so its content stays valid.
 2. Processes that want the same file at the same time wait for the one that loads it.  If that one ends or fails, the
    next one loads it.
 3. Files are in a folder of Spark's that Spark removes with the executor.  The newest file stays, and
    others up to ``FILES_BYTES_MAX`` bytes together.  A process that has mapped a file keeps it.
 4. If keys cannot be written, or are no longer there, the process loads them itself.  A full disk prevents sharing,
    but fails no task.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from lancewal_core.rows.fold import Folded
from lancewal_core.rows.schema import RowSchema
from lancewal_reader.unmerged.loaded import Loaded

FILES_BYTES_MAX = 1 << 30
_PREFIX = "lancewal-keys-"
_SUFFIX = ".arrow"


def digest_of(*values: object) -> str:
    """Return a digest of values that can be pickled.  Equal values may have different digests; the only cost is that
    both are loaded.
    """
    return hashlib.sha256(pickle.dumps(values)).hexdigest()[:32]


def folder_of_executor() -> Path | None:
    """Return the folder for files of this application on this machine; None if this process is not a worker of a
    task."""
    from pyspark import SparkFiles

    root = SparkFiles._root_directory if SparkFiles._is_running_on_worker else None
    return None if root is None else Path(root)


def shared(folder: Path | None, digest: str, schema: RowSchema, load: Callable[[], Loaded]) -> Loaded:
    """Return the result of ``load``, which only one process on this machine calls; others read the result from
    ``folder``.  ``schema`` has the columns of the keys.
    """
    if folder is None:
        return load()
    file = folder / f"{_PREFIX}{digest}{_SUFFIX}"
    with suppress(OSError, pa.ArrowInvalid):
        return _read(file, schema)
    try:
        lock = os.open(folder / f"{_PREFIX}{digest}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return load()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(OSError, pa.ArrowInvalid):
            return _read(file, schema)
        loaded = load()
        with suppress(OSError):
            _write(file, loaded)
            _remove_old(folder, file)
        return loaded
    finally:
        os.close(lock)


def _write(file: Path, loaded: Loaded) -> None:
    folded = loaded.folded
    told = {"unmerged": loaded.unmerged, "partitions": loaded.partitions, "met": loaded.met is not None}
    tables = [folded.rows, folded.gone, folded.partials, *([] if loaded.met is None else [loaded.met])]
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f"{file.stem}.")
    os.close(handle)
    try:
        with pa.OSFile(name, "wb") as sink:
            for table in tables:
                table = table.combine_chunks().replace_schema_metadata({"told": json.dumps(told)})
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
        Path(name).rename(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(file: Path, schema: RowSchema) -> Loaded:
    with pa.memory_map(str(file)) as source:
        first = pa.ipc.open_stream(source).read_all()
        told = json.loads(first.schema.metadata[b"told"])
        rest = [pa.ipc.open_stream(source).read_all() for _ in range(3 if told["met"] else 2)]
    rows, gone, partials, *met = (table.replace_schema_metadata(None) for table in (first, *rest))
    folded = Folded(rows, gone, partials)
    return Loaded(folded, schema, met[0] if met else None, told["unmerged"], tuple(told["partitions"]))


def _remove_old(folder: Path, newest: Path) -> None:
    """Delete the oldest files until all have at most ``FILES_BYTES_MAX`` bytes together, or only ``newest`` is left.

    Lock files stay, since another process may hold one.
    """
    left = FILES_BYTES_MAX - newest.stat().st_size
    others = [path for path in folder.glob(f"{_PREFIX}*{_SUFFIX}") if path != newest]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True):
        left -= path.stat().st_size
        if left < 0:
            path.unlink(missing_ok=True)
