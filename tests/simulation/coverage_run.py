"""``python -m tests.simulation.coverage_run``: branch coverage of the protocol's modules by scenarios and accidents, as JSON.

Nothing is left to chance here: each branch is taken by a play of its own, no random schedule counts.  Branches that the
type checker proves unreachable (``assert_never``) do not count either.

Which lines a jump leads from and to is for the interpreter to say, and they differ: 3.11.2 names the last line of a case for
the jump behind it, so that some branches cannot be seen to be taken.  So what is asked of a module lies below all of them,
and a hash of what each play did tells whether two machines differ in what happened or only in what is measured.
"""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import coverage

MODULES = (
    "lancewal_core.region.end_region",
    "lancewal_ingest.regions.open",
    "lancewal_ingest.regions.partitions",
    "lancewal_ingest.append.job",
    "lancewal_ingest.append.prepare",
    "lancewal_ingest.regions.seal",
    "lancewal_flusher.merge.merge",
    "lancewal_flusher.merge.inputs",
    "lancewal_flusher.merge.changes",
    "lancewal_flusher.commit.send",
    "lancewal_flusher.merge.finish",
    "lancewal_flusher.merge.foreign_rows",
    "lancewal_flusher.garbage.find",
    "lancewal_flusher.garbage.collect",
    "lancewal_core.region.history",
    "lancewal_reader.plan.strong",
)
"""End, open, append, seal, merge (with commit and finish), trim (with history), read plan."""
LEFT_OUT = {
    "table_is_dropped_at_each_step_of_ingest",
    "keys_of_two_schemas_in_any_order",
    "table_is_dropped_at_each_step_of_a_merge",
    "heir_claims_while_the_table_is_dropped",
    "log_s_end_is_asked_of_a_bad_listing",
    "owner_appends_while_the_table_is_dropped",
    "restored_table_gets_the_newest_columns",
    "drained_up_to_a_key_of_the_new_number",
    "deaths_at_each_step_of_a_widening",
    "user_deletes_a_row_under_a_patch",
    "segments_in_a_row_are_lost",
    "what_another_program_did_is_adopted",
}
"""Plays that take long and take no branch that no other play takes.  They are played once, by tests of their own."""


@dataclass(frozen=True, slots=True)
class Measured:
    """``missing``: branches that were not taken, as pairs of lines."""

    percent: dict[str, float]
    missing: dict[str, list[list[int]]]
    traces: dict[str, int]
    """By play: hash of all calls to store, table and Kafka, in order (``Script.trace``)."""
    machine: str


def _play() -> dict[str, int]:
    from tests.simulation.accidents import ACCIDENTS
    from tests.simulation.scenarios import SCENARIOS
    from tests.simulation.script import Script

    plays = [play for play in (*SCENARIOS, *ACCIDENTS) if play.__name__ not in LEFT_OUT]
    assert len(plays) == len(SCENARIOS) + len(ACCIDENTS) - len(LEFT_OUT)
    traces = {}
    for play in plays:
        Script.trace = 0
        play()
        traces[play.__name__] = Script.trace
    return traces


def measure() -> Measured:
    """Branches taken, by module."""
    measured = coverage.Coverage(
        data_file=None, branch=True, include=[f"*/{m.replace('.', '/')}.py" for m in MODULES], config_file=False
    )
    measured.exclude("case _:")
    measured.exclude("assert_never")
    measured.start()
    traces = _play()
    measured.stop()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    percent, missing = {}, {}
    for module in MODULES:
        (found,) = [f for name, f in files.items() if name.endswith(f"{module.replace('.', '/')}.py")]
        percent[module] = 100.0 * found["summary"]["covered_branches"] / found["summary"]["num_branches"]
        missing[module] = found["missing_branches"]
    machine = f"{platform.platform()}, {platform.machine()}, Python {sys.version}, coverage {coverage.__version__}"
    return Measured(percent, missing, traces, machine)


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # log lines of what is played
        measured = measure()
    json.dump(asdict(measured), sys.stdout, indent=1)
