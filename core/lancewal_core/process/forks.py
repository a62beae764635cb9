"""Forks: the threads of Lance, of obstore and of ``ThreadTasks`` do not live on in the child, where a call would wait for them
for ever.

Guarantee: in the child of a process that had used them each use raises ``ProcessForked`` at once.  Where the parent had only
imported lancewal, the child may use all of it.
"""

from __future__ import annotations

import os

from lancewal_core.errors import ProcessForked

_used = False
_lost = False


def use_threads() -> None:
    """To be called before each use."""
    global _used
    if _lost:
        raise ProcessForked(
            "this process was forked off one that had used lancewal, whose threads it does not have. Start it by spawn or "
            "forkserver (multiprocessing.set_start_method), or open tables in the child alone"
        )
    _used = True


def _in_child() -> None:
    global _lost
    _lost = _used


os.register_at_fork(after_in_child=_in_child)
