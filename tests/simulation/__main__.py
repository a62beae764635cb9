"""``python -m tests.simulation``: random schedules for as long as wanted; a failing seed prints how to repeat it.

``--long`` also looks, without direction, for every mutation of ``mutations``, and says after how many schedules each is
found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import pytest

from tests.simulation.kinds import KINDS
from tests.simulation.many import Totals, run_many
from tests.simulation.mutations import KINDS_TO_SEARCH, MUTATIONS
from tests.simulation.run import SimulationFailed, run

_AT_A_TIME = 20


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of schedules; with --long also of each mutation")
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first")
    parser.add_argument("--runs", type=int, help="so many schedules instead of --minutes")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of world; again for several; default: all")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--long", action="store_true", help="look for the mutations too")
    options = parser.parse_args()
    failed = _schedules(options)
    if options.long and not failed:
        failed = _mutations(options.seed, options.minutes)
    return 1 if failed else 0


def _schedules(options: argparse.Namespace) -> bool:
    totals = Totals()
    ends = time.monotonic() + options.minutes * 60
    seed, left = options.seed, options.runs
    while left if left is not None else time.monotonic() < ends:
        count = _AT_A_TIME if left is None else min(left, _AT_A_TIME)
        found = run_many([(kind, range(seed, seed + count)) for kind in options.kind or KINDS])
        seed += count
        left = None if left is None else left - count
        totals.add(found)
        for failure in found.failures:
            print(failure, flush=True)
        if found.failures and not options.keep_going:
            break
    print(totals.text(), flush=True)
    return bool(totals.failures)


@dataclass(frozen=True, slots=True)
class Search:
    """How a mutation was looked for; ``said`` is None where time was up before it was found."""

    kind: str
    schedules: int
    said: str | None

    def row(self, name: str) -> str:
        said = "NOT FOUND" if self.said is None else " ".join(self.said.split())[:90]
        return f"  {name:46s} {self.kind:14s} {self.schedules:9d}  {said}"


def search(name: str, seed: int, minutes: float) -> Search:
    """Random schedules from ``seed`` on until one fails; without the mutation the same one must not."""
    kind = KINDS_TO_SEARCH.get(name, "swarm")
    ends = time.monotonic() + minutes * 60
    schedules = 0
    while time.monotonic() < ends:
        at = seed + schedules
        schedules += 1
        with pytest.MonkeyPatch.context() as patch:
            MUTATIONS[name](patch)
            said = _failure(at, kind)
        if said is not None and _failure(at, kind) is None:
            return Search(kind, schedules, said)
    return Search(kind, schedules, None)


def _failure(seed: int, kind: str) -> str | None:
    """What went wrong in a schedule."""
    try:
        run(seed, KINDS[kind])
    except SimulationFailed as error:
        return str(error.__cause__)
    return None


def _mutations(seed: int, minutes: float) -> bool:
    """Print, for each mutation, after how many schedules it was found."""
    print(f"mutations, without direction, from seed {seed} on:", flush=True)
    print(f"  {'mutation':46s} {'kind':14s} schedules  found by", flush=True)
    missed = False
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        searches = {name: pool.submit(search, name, seed, minutes) for name in MUTATIONS}
        for name, running in searches.items():
            found = running.result()
            missed = missed or found.said is None
            print(found.row(name), flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
