"""``python -m tests.simulation``: random schedules for as long as wanted; a failing seed prints how to repeat it.

``--long`` also looks, without direction, for every mutation of ``mutations``, and says after how many schedules each is
found.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.kinds import KINDS
from tests.simulation.many import Totals, run_many
from tests.simulation.undirected import search_all

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
        failed = search_all(options.seed, options.minutes)
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


if __name__ == "__main__":
    sys.exit(main())
