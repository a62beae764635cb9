"""``lancewal ingest run`` has one heap, whatever the libraries that it loads would do by themselves."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import ctypes, json, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from lancewal_core.cli.program import run

code = run(["ingest", "run", "--table", sys.argv[1]])  # ends behind the imports: no broker is named
import pyarrow as pa

libc = ctypes.CDLL(None)
libc.malloc_info.argtypes, libc.fdopen.argtypes = (ctypes.c_int, ctypes.c_void_p), (ctypes.c_int, ctypes.c_char_p)
libc.fdopen.restype, libc.fclose.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
with ThreadPoolExecutor(4) as threads:
    list(threads.map(lambda n: bytes(10_000 * n), range(40)))
table = pa.table({"a": list(range(1000)), "s": [str(n) for n in range(1000)]})
assert table.group_by("s").aggregate([("a", "max")]).num_rows == 1000  # memory that C++ code asks for by itself
with tempfile.NamedTemporaryFile() as file:
    stream = libc.fdopen(libc.dup(file.fileno()), b"w")
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    heaps = open(file.name).read().count("<heap nr=")
print(json.dumps([code, heaps, pa.mimalloc_memory_pool().max_memory(), pa.jemalloc_memory_pool().max_memory()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is another one")
def test_a_service_has_one_heap_from_before_its_first_thread(tmp_path: Path) -> None:
    command = (sys.executable, "-c", _PROGRAM, str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [2, 1, 0, 0], done.stderr
