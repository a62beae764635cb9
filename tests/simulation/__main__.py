"""``python -m tests.simulation --minutes N``: as many schedules as fit, beginning at ``--seed``; ends at a failure."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.run import SimulationFailed, run
from tests.simulation.world import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=Settings().records)
    parser.add_argument("--members", type=int, default=Settings().members)
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    options = parser.parse_args()
    settings = Settings(records=options.records, members=options.members)
    ends = time.monotonic() + options.minutes * 60
    seed, failed, switches = options.seed, 0, 0
    counts: Counter[str] = Counter()
    traces: set[int] = set()
    while time.monotonic() < ends:
        try:
            report = run(seed, settings)
        except SimulationFailed as error:
            failed += 1
            print(error, flush=True)
            if not options.keep_going:
                return 1
        else:
            switches += report.switches
            traces.add(report.trace)
            counts.update(report.counts)
        seed += 1
    print(f"{seed - options.seed} runs, {failed} failed, {len(traces)} schedules, {switches} switches")
    for event, count in sorted(counts.items()):
        print(f"  {count:8d} {event}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
