"""``python3 dev.py check-ops``: what dashboards and alerts say is true, shown on real services and a real Prometheus.

``--only FAULT`` (repeatable) makes these faults alone.  ``--no-cluster`` leaves the API server out.  The page keeps the last
run of each fault.  Exit code 0: every panel moved, every alert fired and cleared, and the API server took every object.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.ops.cluster import refused_objects
from tests.ops.faults import FAULTS, SHORTENED, UNMOVED, Fault
from tests.ops.kept import Kept
from tests.ops.page import PAGE, page, seconds
from tests.ops.prometheus import Prometheus
from tests.ops.series import run_cases
from tests.ops.silence import wrong_alerts
from tests.ops.stage import JOBS, Stage, staged
from tests.ops.watching import Results, try_fault, unmoved

_SILENCE_S = 10.0
"""Longer than the time that rates are taken over."""


def say(text: str) -> None:
    print(f"-- {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py check-ops", description=__doc__)
    parser.add_argument("--only", action="append", choices=[fault.name for fault in FAULTS], default=[])
    parser.add_argument("--no-cluster", action="store_true")
    given = parser.parse_args()
    folder, kept = Path(tempfile.mkdtemp(prefix="lancewal-ops-")), Kept()
    say(f"logs are in {folder}")
    if not given.only:
        kept.forget()  # the page is of one run
    problems = run_cases(folder)
    say(f"{len(problems)} of the alerts on made-up series are wrong")
    loud = wrong_alerts(folder)
    say(f"{len(loud)} alerts about made-up tables, healthy ones and others, are wrong")
    problems += loud
    if not given.no_cluster:
        (folder / "cluster").mkdir()
        objects, refused = refused_objects(folder / "cluster")
        say(f"the API server takes {objects - len(refused)} of {objects} objects")
        problems += refused
        kept.keep_objects(objects - len(refused))
    with staged(folder) as stage:
        jobs = {job: [stage.ports[name] for name in names] for job, names in JOBS.items()}
        with Prometheus(folder, jobs, SHORTENED) as prometheus:
            for name in stage.services:
                stage.wait_for_answer(name)
            time.sleep(_SILENCE_S)
            for fault in FAULTS:
                if not given.only or fault.name in given.only:
                    problems += _made(fault, stage, prometheus, kept)
            for name, why in UNMOVED.items():
                results = Results()
                unmoved(name, why, prometheus, results)
                problems += results.problems
                kept.keep(name, results, 0.0)
            problems += prometheus.broken_rules()
    PAGE.write_text(page(kept))
    say(f"written: {PAGE}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _made(fault: Fault, stage: Stage, prometheus: Prometheus, kept: Kept) -> list[str]:
    """What is wrong."""
    say(fault.name)
    results, started = Results(), time.monotonic()
    problems = []
    try:
        try_fault(fault, stage, prometheus, results)
    except Exception as error:  # the others are still worth a look
        problems.append(f"{fault.name}: {error!r}")
    for alert in results.fired:
        say(f"   {alert.alert}: fires after {seconds(alert.fired_s)}, clears after {seconds(alert.cleared_s)}")
    problems += results.problems
    for problem in problems:
        say(f"   {problem}")
    kept.keep(fault.name, results, time.monotonic() - started)
    return problems


if __name__ == "__main__":
    sys.exit(main())
