"""One heap for an ingest process whose C library is glibc.  Free pages of the heap are given back after each flush.

By default each thread gets a heap of its own.  Arrow keeps two more: one for calls from Python, one for what its C++
code asks for by itself.  Memory that a fetch, a decoded batch or a flush leaves free in one heap is of no use to
the others.  The process then stays as large as the sum of their peaks.

A limit on the number of heaps does not remove heaps that exist, so it must be set before any thread starts.  PyArrow
starts a thread when it is imported.  Own measurement of the peak, 3 M mixed rows on two loaded cores with a budget of
512 MiB:
 - 789 MiB if the limit came after other threads had worked,
 - 675 MiB after the import,
 - 569 MiB before it.

If most bytes come in large records, pieces of more than half a MiB get pages of their own.  Freed pages then return
at once.  By default glibc raises that limit to the largest piece ever freed, up to 32 MiB.  Records and columns of a
megabyte then leave holes that nothing fits into.  Own measurement with records of 900 KB: 430 MiB of holes at the
peak, and 250 if one record in a thousand is that large.  Small records leave no holes, and new pages for each of
their batches cost a seventh of the processor's time.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Parameters of mallopt, from glibc's malloc.h."""
_OWN_PAGES_BYTES = 512 << 10
_TOP_KEPT_BYTES = 64 << 20
"""Free bytes at the heap's end that glibc keeps: the value that glibc would choose by itself."""
_ours: ctypes.CDLL | None = None
"""The C library, if it is glibc and ``use_one_heap`` was called; else None."""


def use_one_heap() -> None:
    """Limit glibc to one heap, for Arrow too.  Call before PyArrow is imported: later calls save less memory.

    Does nothing if the C library is not glibc."""
    global _ours
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
        libc.mallopt(_M_ARENA_MAX, 1)
        # Arrow's C++ code asks no other pool, and looks once, at its first allocation.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        import pyarrow as pa

        pa.set_memory_pool(pa.system_memory_pool())
        _ours = libc


def use_own_pages() -> None:
    """From now on, allocate large pieces of memory by mmap, so that they are returned when freed.  Does nothing without
    ``use_one_heap``.
    """
    if _ours is not None:
        _ours.mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
        _ours.mallopt(_M_TRIM_THRESHOLD, _TOP_KEPT_BYTES)


def return_free_pages() -> None:
    """Return free pages to the operating system.  Does nothing without ``use_one_heap``."""
    if _ours is not None:
        _ours.malloc_trim(0)
