"""A pool of processes for simulations, one for each processor.

Each process keeps to a processor of its own: a scheduler's threads share the first that their process may use.  All give way
to other tests that run meanwhile, some of which wait for real time.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.queues import SimpleQueue


def one_for_each_processor() -> ProcessPoolExecutor:
    """Started anew, not forked: threads of the caller, such as Arrow's, would not be there."""
    context = multiprocessing.get_context("spawn")
    processors = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))
    free: SimpleQueue[int] = context.SimpleQueue()
    for processor in processors:
        free.put(processor)
    return ProcessPoolExecutor(len(processors), mp_context=context, initializer=_keep_to_one, initargs=(free,))


def _keep_to_one(free: SimpleQueue[int]) -> None:
    os.nice(10)
    processor = free.get()
    if sys.platform == "linux":
        os.sched_setaffinity(0, {processor})
