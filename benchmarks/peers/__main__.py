"""``python -m benchmarks.peers``: run the measures, print a line for each, and write JSON and the docs page.

Exit code 0: everything was measured, whether aims are met or not.  3: a peer could not be fetched, started or used; the
others were measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.__main__ import PAGE, RESULTS, machine
from benchmarks.peers import as_arrow, scans, through_kafka
from benchmarks.peers.engines import ENGINES, Engine
from benchmarks.peers.measure import HEADER, Measured, cells
from benchmarks.peers.sizes import Sizes
from benchmarks.report import write_page
from benchmarks.workplace import Workplace, workplace
from lancewal_demo.stack import KafkaBroker, StackFailed

PEER_MISSING = 3
_GIB_PER_ROW = 15 / 5_000_000
RESULT = RESULTS / "peers.json"
_MEASURES = """measures:
 a  upserts through Kafka, against MERGE of each peer in Spark
 b  upserts given as Arrow, against the peers without Spark
 c  reads after the rounds, before and after compaction
 d  a named snapshot read by lance-spark, against its own table after the same rounds"""


@dataclass(frozen=True, slots=True)
class Step:
    """A measure, against one peer if it has one."""

    measure: str
    engine: Engine | None

    @property
    def name(self) -> str:
        return self.measure if self.engine is None else f"{self.measure}-{self.engine.name}"


def main(arguments: Sequence[str]) -> int:
    chosen = _parse(arguments)
    sizes = Sizes(chosen.rows, chosen.rounds, chosen.round_rows)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    facts = {"machine": machine(), "sizes": asdict(sizes)}  # its load is that of the start
    measured: list[Measured] = []
    missing: dict[str, str] = {}
    with workplace(free_gib=2 + int(_GIB_PER_ROW * sizes.rows)) as place, ExitStack() as stack:
        runner = _Runner(place, sizes, stack)
        for step in _steps(chosen.measures, [ENGINES[name] for name in chosen.peers]):
            print(f"{step.name} ...", flush=True)
            try:
                for found in runner.run(step):
                    measured.append(found)
                    print("   " + " | ".join(cells(found.content())), flush=True)
            except StackFailed as error:
                first, *others = str(error).splitlines()
                missing[step.name] = " ".join([first, *others[-1:]])  # the log's last line is the exception
                print(f"   not measured: {error}", file=sys.stderr, flush=True)
            result = facts | {"measured": [m.content() for m in measured], "missing": missing}
            chosen.output.write_text(json.dumps(result, indent=1) + "\n")
    if chosen.output == RESULT:
        write_page(RESULTS, PAGE)
    _print(measured, missing)
    return PEER_MISSING if missing else 0


class _Runner:
    """The broker starts with the first step that needs it, and stays."""

    def __init__(self, place: Workplace, sizes: Sizes, stack: ExitStack) -> None:
        self._place, self._sizes, self._stack = place, sizes, stack
        self._base = place.base(sizes.rows)
        self._broker: KafkaBroker | None = None

    def run(self, step: Step) -> Iterator[Measured]:
        folder = self._place.folder / step.name
        folder.mkdir()
        base, sizes = self._base, self._sizes
        try:
            match step:
                case Step("a", Engine() as engine):
                    yield from through_kafka.measure(base, folder, sizes, engine, self._kafka())
                case Step("b", Engine() as engine):
                    yield from as_arrow.measure(base, folder, sizes, engine)
                case Step("c", Engine() as engine):
                    yield from scans.against_peer(base, folder, sizes, engine)
                case Step("d", Engine() as engine):
                    yield from scans.of_snapshot(base, folder, sizes, engine)
                case _:
                    yield from scans.against_lance(base, folder, sizes)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _kafka(self) -> KafkaBroker:
        if self._broker is None:
            # Not the quick start of the tests: a broker that compiles well.
            broker = KafkaBroker(self._place.folder / "kafka", jvm_options=("-Xmx1g",))
            self._broker = self._stack.enter_context(broker)
        return self._broker


def _steps(measures: str, engines: Sequence[Engine]) -> Iterator[Step]:
    for measure in measures:
        if measure == "c":
            yield Step("c", None)
        for engine in engines:
            if engine.by_spark == (measure == "a") if measure != "d" else engine.reads_lance:
                yield Step(measure, engine)


def _print(measured: Sequence[Measured], missing: dict[str, str]) -> None:
    """A table for people."""
    rows = [list(HEADER), *(cells(found.content()) for found in measured)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADER))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for name, reason in missing.items():
        print(f"{name}: not measured: {reason}")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dev.py bench-peers", epilog=_MEASURES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = Sizes()
    parser.add_argument("--rows", type=int, default=sizes.rows, help="rows of the tables (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=sizes.rounds, help="default: %(default)s")
    parser.add_argument("--round-rows", type=int, default=sizes.round_rows, help="upserts of a round (%(default)s)")
    parser.add_argument("--peers", type=_peers, default=list(ENGINES), help=f"default: {','.join(ENGINES)}")
    parser.add_argument(
        "--measures", type=_measures, default="abcd", help="some of a, b, c, d; see below (default: all)"
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON; by default what the docs page is made of")
    return parser.parse_args(arguments)


def _peers(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - set(ENGINES))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown peers {unknown}; there are {sorted(ENGINES)}")
    return names


def _measures(text: str) -> str:
    if not text or set(text) - set("abcd"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected some of a, b, c, d")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
