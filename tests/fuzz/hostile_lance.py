"""Lance's own files in the hands of somebody who may write into the table's folder: manifests, transactions, deletion files,
data files, each cut, flipped, overwritten; read by the plain reader and opened as the flusher opens it.

``run(seconds, seed)`` tries cases for so long and says what became of each.  Where a case changes what follows from the seed;
the files themselves have other names and ids in each run.  Cases are read in a process of their own, so that one which ends by
a signal, that stands still or that takes memory without end is named, and the next case gets a new process.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lancewal_core.errors import LancewalError
from lancewal_demo.stack.resident_memory import resident_bytes

KINDS = {"manifest": "_versions", "transaction": "_transactions", "deletion file": "_deletions", "data file": "data"}
"""Folder of each kind of Lance's files."""
MEMORY_MAX = 512 << 20
"""That a case may take beside what the process had: the table has some KB."""
CASE_S = 120.0
"""No case takes a second; a machine may be busy."""
_NUMBERS = (0, 1, 0x7F, 0xFF, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class Case:
    """One file, damaged."""

    kind: str
    file: str
    data: bytes


@dataclass(slots=True)
class Tried:
    """What became of the cases."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """By kind of file and ``read`` or the kind of our error."""
    wrong: list[str] = field(default_factory=list)
    """Cases that ended otherwise: by a signal, an error that is none of ours, too much memory, no end."""


def run(seconds: float, seed: int, cases_max: int = 1 << 60) -> Tried:
    """Try cases for ``seconds``, or ``cases_max`` of them."""
    tried, end = Tried(), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        source = build(Path(folder) / "source")
        while time.monotonic() < end and tried.cases < cases_max:
            _one_process(source, Path(folder) / "table", seed, cases_max, end, tried)
    return tried


def build(folder: Path) -> Path:
    """A table with every kind of Lance's files, merges behind it and rows that wait for one."""
    from tests.support.flusher_tables import FlusherTable, delete, patch, upserts

    folder.mkdir(parents=True)
    table = FlusherTable(folder)
    table.generation(0, upserts(range(40), a=1))
    table.generation(1, upserts(range(20), a=1))
    table.round()
    table.generation(0, [patch(3, a=9), delete(5), *upserts(range(30, 45), a=2)])
    table.round()
    table.generation(1, upserts(range(10, 25), a=3))
    table.close()
    return Path(table.uri)


def cases(source: Path, seed: int) -> Iterator[Case]:
    """Without end."""
    files = {kind: sorted(p for p in (source / name).rglob("*") if p.is_file()) for kind, name in KINDS.items()}
    assert all(files.values()), {kind: len(found) for kind, found in files.items()}
    number = 0
    while True:
        draws = random.Random(f"{seed}-{number}")
        kind = list(KINDS)[number % len(KINDS)]
        # Of manifests the newest, whose name sorts first: others are opened where it is not enough.
        path = draws.choice(files[kind][:1] * 5 + files[kind][-2:])
        yield Case(kind, str(path.relative_to(source)), damaged(draws, path.read_bytes()))
        number += 1


def damaged(draws: random.Random, data: bytes) -> bytes:
    """Cut, or up to three bits, numbers or stretches changed; footers, where lengths and places stand, more than the rest."""
    if draws.random() < 0.15:
        return data[: draws.randrange(len(data))]
    made = bytearray(data)
    for _ in range(draws.randint(1, 3)):
        tail = min(len(made), 200)
        at = draws.randrange(len(made) - tail, len(made)) if draws.random() < 0.6 else draws.randrange(len(made))
        match draws.randrange(4):
            case 0 | 1:
                made[at] ^= 1 << draws.randrange(8)
            case 2:
                form = draws.choice(["<B", "<H", "<I", "<Q"])
                size = struct.calcsize(form)
                made[at : at + size] = struct.pack(form, draws.choice(_NUMBERS) % (1 << (8 * size)))
            case _:
                width = draws.randint(1, 32)
                made[at : at + width] = bytes([draws.choice((0, 0x7F, 0xFF))]) * width
    return bytes(made[: len(data)])


# -- the process that reads --------------------------------------------------------------------------------------------


def read(uri: str) -> None:
    """All rows, as a program that uses the reader gets them."""
    from lancewal_reader.table import open_table

    open_table(uri).to_arrow()


def open_as_flusher(uri: str) -> None:
    """What the flusher looks at before it merges: the newest version, what is merged, hidden rows, the key index."""
    from lancewal_core.settings.load import Settings
    from lancewal_core.settings.sections import TableSettings
    from lancewal_flusher.open import open_context

    with ExitStack() as stack:
        context = stack.enter_context(open_context(Settings(table=TableSettings(uri=uri))))
        pinned, _ = context.watermarks.newest()
        for fragment in pinned.fragments():
            pinned.hidden_rows(fragment.fragment_id)


ACTS: dict[str, Callable[[str], None]] = {"reader": read, "flusher": open_as_flusher}


def child(source: Path, table: Path, seed: int, begin: int, count: int) -> None:
    """Cases ``begin`` and on; a line before each and one behind it."""
    shutil.rmtree(table, ignore_errors=True)
    shutil.copytree(source, table)
    for act in ACTS.values():
        act(str(table))  # it is sound, and everything is loaded
    say = sys.stdout
    for number, case in enumerate(cases(source, seed)):
        if number < begin:
            continue
        if number >= begin + count:
            return
        path = table / case.file
        say.write(json.dumps({"begins": number, "kind": case.kind, "file": case.file}) + "\n")
        say.flush()
        path.write_bytes(case.data)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident_bytes("VmRSS")
        outcomes = {name: _outcome(act, str(table)) for name, act in ACTS.items()}
        took = resident_bytes("VmHWM") - before
        shutil.copy(source / case.file, path)
        say.write(json.dumps({"ends": number, "outcomes": outcomes, "took": took}) + "\n")
        say.flush()


def _outcome(act: Callable[[str], None], uri: str) -> str:
    try:
        act(uri)
    except LancewalError as error:
        return error.kind
    except BaseException as error:  # a panic is no Exception
        return f"! {type(error).__name__}: {str(error)[:300]}"
    return "read"


def _one_process(source: Path, table: Path, seed: int, cases_max: int, end: float, tried: Tried) -> None:
    """Cases from ``tried.cases`` on, until one ends the process or ``end`` comes."""
    count = min(cases_max - tried.cases, 1 << 20)
    arguments = [str(source), str(table), str(seed), str(tried.cases), str(count)]
    begun: dict[str, Any] | None = None
    killed = ""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.hostile_lance", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=Path(__file__).resolve().parents[2],
        ) as process,
    ):
        try:
            for line in _lines(process, end):
                if isinstance(line, str):
                    killed = line
                    break
                if "begins" in line:
                    begun = line
                    continue
                _note(tried, begun or {}, line)
                begun = None
        finally:
            process.kill()
            code = process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    if begun is not None and killed != "over":
        tried.cases += 1
        how = killed or (f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}")
        why = next(
            (text for text in said.splitlines() if "panick" in text or "abort" in text or "alloc" in text), said[-300:]
        )
        tried.wrong.append(f"case {begun['begins']} of seed {seed}, {begun['file']}: {how}: {why[:300]}")
        tried.outcomes[f"{begun['kind']}: {how}"] += 1
    elif begun is None and not killed and code not in (0, -signal.SIGKILL):
        raise AssertionError(f"the process that reads ended with {code} between two cases")


def _note(tried: Tried, begun: dict[str, Any], ended: dict[str, Any]) -> None:
    tried.cases += 1
    for act, outcome in ended["outcomes"].items():
        tried.outcomes[f"{begun['kind']}: {outcome[:60]}"] += 1
        if outcome.startswith("!"):
            tried.wrong.append(f"case {begun['begins']}, {begun['file']}: the {act} ended with {outcome[2:]}")
    if ended["took"] > MEMORY_MAX:
        tried.wrong.append(f"case {begun['begins']}, {begun['file']}: took {ended['took']} bytes")


def _lines(process: subprocess.Popen[bytes], end: float) -> Iterator[dict[str, Any] | str]:
    """What it says; a text instead where it must be killed."""
    assert process.stdout is not None
    since, rest = time.monotonic(), b""
    while True:
        if select.select([process.stdout], [], [], 0.1)[0]:
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            since = time.monotonic()
            for line in lines:
                yield json.loads(line)
        if time.monotonic() >= end:
            yield "over"
        elif time.monotonic() - since > CASE_S:
            yield f"no end within {CASE_S:.0f} s"
        elif process.poll() is None and _resident(process.pid) > 4 * MEMORY_MAX:
            yield "memory without end"


def _resident(pid: int) -> int:
    try:
        return resident_bytes("VmRSS", pid)
    except (OSError, StopIteration):
        return 0


if __name__ == "__main__":
    child(Path(sys.argv[1]), Path(sys.argv[2]), *(int(n) for n in sys.argv[3:6]))
