"""How far a command is, on a pseudo-terminal; and that nothing is written elsewhere."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from lancewal_core.cli import progress_line
from lancewal_core.cli.progress_line import ProgressLine
from lancewal_core.errors import KafkaUnavailable
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.progress import listen, step
from lancewal_kafka.reread import consumed, lone_consumer
from lancewal_kafka.topic import TopicInspector
from tests.support.scripted import ManualClock
from tests.support.whole_path import until


class Screen:
    """A terminal of so many columns, and what stands on it."""

    def __init__(self, columns: int = 200) -> None:
        self.columns = columns
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.slave = slave
        self.file: TextIO = os.fdopen(slave, "w", closefd=False)
        self._raw = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(self._master, 65536):
                self._raw += data

    @property
    def raw(self) -> bytes:
        """All that was written up to now."""
        self.file.flush()
        return bytes(self._raw)

    def wait_for(self, text: str) -> None:
        """Until the screen got it: the terminal is a queue to its reader."""
        until(lambda: text.encode() in self.raw, lambda: repr(self.raw))

    @property
    def lines(self) -> list[str]:
        """What a person sees: a carriage return goes back to the line's begin, and what follows stands over it."""
        found: list[str] = []
        for line in self.raw.decode().split("\n"):
            cells: list[str] = []
            at = 0
            for character in line:
                if character == "\r":
                    at = 0
                    continue
                cells[at : at + 1] = [character]
                at += 1
            assert len(cells) < self.columns
            found.append("".join(cells).rstrip())
        return found

    def close(self) -> None:
        os.close(self.slave)
        self._reader.join()
        os.close(self._master)


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.close()


@contextlib.contextmanager
def heard(line: ProgressLine) -> Iterator[None]:
    listen(line)
    try:
        yield
    finally:
        listen(None)


def drawn_at(screen: Screen, work: Callable[[ManualClock, ProgressLine], None]) -> list[str]:
    """What the screen shows in the end, of work with a line on it."""
    clock = ManualClock()
    line = ProgressLine(screen.file, clock, ticking=False)
    with heard(line):
        work(clock, line)
    screen.file.write("\nEND")
    screen.wait_for("END")
    return screen.lines


def test_a_step_shows_figures_once_it_takes_long(screen: Screen) -> None:
    def work(clock: ManualClock, line: ProgressLine) -> None:
        with step("reading orders-3", 5_000, "offsets") as told:
            line.draw()
            clock.sleep(0.9)
            line.draw()
            assert screen.raw == b""
            clock.sleep(1.1)
            told.done = 1_200
            line.draw()
            screen.wait_for("reading orders-3: 1,200 of 5,000 offsets (24 %), 600/s, 2 s")
            with step("comparing"):
                clock.sleep(61)
                line.draw()
                screen.wait_for("comparing: 1 min 1 s")
                before = screen.raw
                line.draw()
                assert screen.raw == before  # it says so already
            line.draw()
            screen.wait_for("(24 %), 19/s, 1 min 3 s")

    assert drawn_at(screen, work) == ["", "END"]  # it is erased in the end


def test_totals_that_nobody_knows_and_empty_ones(screen: Screen) -> None:
    def work(clock: ManualClock, line: ProgressLine) -> None:
        with step("scanning", unit="rows") as told:
            told.done = 3
            clock.sleep(2)
            line.draw()
            screen.wait_for("scanning: 3 rows, 1.5/s, 2 s")
        with step("scanning", 0, "rows"):
            clock.sleep(2)
            line.draw()
            screen.wait_for("scanning: 0 of 0 rows, 2 s")

    assert drawn_at(screen, work) == ["", "END"]


def test_who_does_not_answer_is_named_with_how_long(screen: Screen) -> None:
    def work(clock: ManualClock, line: ProgressLine) -> None:
        with step("reading orders-3", 10, "offsets", asked="Kafka at a:1,b:2") as told:
            clock.sleep(4)
            told.done = 5
            line.draw()
            screen.wait_for("5 of 10 offsets")
            clock.sleep(7)
            line.draw()
            screen.wait_for("Kafka at a:1,b:2 has not answered for 7 s: reading orders-3")
            told.asked = ""  # its caller works
            line.draw()
            screen.wait_for("5 of 10 offsets (50 %), 0.5/s, 11 s")
        with step("describing topic orders", asked="Kafka at a:1,b:2"):
            before = len(screen.raw)
            clock.sleep(4.9)
            line.draw()
            assert len(screen.raw) == before  # a question that is answered soon is not worth a line
            clock.sleep(0.2)
            line.draw()
            screen.wait_for("Kafka at a:1,b:2 has not answered for 5 s: describing topic orders")

    assert drawn_at(screen, work) == ["", "END"]


def test_lines_of_the_log_stand_alone(screen: Screen) -> None:
    def work(clock: ManualClock, line: ProgressLine) -> None:
        with step("scanning a table with a long name"):
            clock.sleep(2)
            line.draw()
            line.write("merge_landed")
            line.draw()  # in the middle of a line
            line.write("\n")
            line.draw()
            line.flush()

    assert drawn_at(screen, work) == ["merge_landed", "", "END"]


def test_the_line_fits_and_nothing_in_it_moves_the_cursor() -> None:
    screen = Screen(columns=40)
    try:

        def work(clock: ManualClock, line: ProgressLine) -> None:
            with step("reading \x1b[2J\n" + "x" * 100):
                clock.sleep(2)
                line.draw()

        assert drawn_at(screen, work) == ["", "END"]
        assert b"\x1b" not in screen.raw
    finally:
        screen.close()


def test_work_goes_on_where_the_terminal_is_gone(screen: Screen) -> None:
    with open(os.dup(screen.slave), "w") as other:
        line = ProgressLine(other, clock := ManualClock(), ticking=False)
    with heard(line), step("scanning"):
        clock.sleep(2)
        line.draw()


def test_steps_of_several_threads_end_in_any_order(screen: Screen) -> None:
    def work(clock: ManualClock, line: ProgressLine) -> None:
        first, second = step("first"), step("second")
        first.__enter__()
        second.__enter__()
        clock.sleep(2)
        first.__exit__(None, None, None)
        line.draw()
        screen.wait_for("second: 2 s")
        second.__exit__(None, None, None)

    assert drawn_at(screen, work) == ["", "END"]


def test_nobody_listens_unless_a_command_has_a_terminal() -> None:
    with step("anything", 3, "rows") as told:
        assert list(told.counting(iter([1, 2]))) == [1, 2]
    assert told.done == 2


# -- a broker that does not answer -----------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[str]:
    """A broker that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "SILENT_AFTER_S", 0.2)
    monkeypatch.setattr(progress_line, "_TICK_S", 0.02)


@pytest.mark.usefixtures("soon")
def test_a_broker_that_does_not_answer_is_named_while_it_is_asked(screen: Screen, silent: str) -> None:
    """All addresses that are tried, by a question as by a reading."""
    servers = f"{silent},{silent}"
    with heard(ProgressLine(screen.file, SystemClock())):
        with pytest.raises(KafkaUnavailable, match="does not answer"):
            TopicInspector({"bootstrap.servers": servers}, 1.0).identify("orders")
        screen.wait_for(f"Kafka at {servers} has not answered for 0 s: describing topic orders")
        with pytest.raises(KafkaUnavailable):
            TopicInspector({"bootstrap.servers": servers}, 1.0).ends("orders", [0])
        screen.wait_for("asking for offsets of topic orders")
        with (
            pytest.raises(KafkaUnavailable, match="no record came"),
            lone_consumer({"bootstrap.servers": servers}, "g", "orders") as consumer,
        ):
            list(consumed(consumer, Region("orders", TopicId("t"), 3), Position(5), Position(9), silent_s=0.5))
        screen.wait_for(f"Kafka at {servers} has not answered for 0 s: reading orders-3")
    screen.file.write("\nEND")
    screen.wait_for("END")
    assert screen.lines == ["", "END"]


PROGRAM = """
import sys
from lancewal_core.cli import progress_line, program
from lancewal_kafka import clients
clients.REQUEST_TIMEOUT_S = 0.5
progress_line.SHOWN_AFTER_S = progress_line.SILENT_AFTER_S = 0.0
progress_line._TICK_S = 0.01
sys.exit(program.run(sys.argv[1:]))
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_the_program_shows_it_on_a_terminal_alone(terminal: bool, screen: Screen, silent: str, tmp_path: Path) -> None:
    """And leaves its result and its error as they are."""
    command = ["table", "create", "-t", str(tmp_path / "t"), "-c", str(tmp_path / "lancewal.yaml")]
    (tmp_path / "lancewal.yaml").write_text(
        "table: {topic: orders, columns: {id: int64}, primary_key: [id], region_key: [id]}\n"
        f"kafka: {{bootstrap_servers: '{silent}'}}\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command],
        stdout=subprocess.PIPE,
        stderr=screen.slave if terminal else subprocess.PIPE,
        text=True,
        env=environment,
        check=False,
        timeout=240,
    )
    assert (done.returncode, done.stdout) == (3, "")
    if terminal:
        screen.wait_for("lancewal: kafka_unavailable")
        assert f"Kafka at {silent} has not answered for 0 s: describing topic orders".encode() in screen.raw
    else:
        assert done.stderr.startswith("lancewal: kafka_unavailable")
        assert "\r" not in done.stderr
        assert "has not answered" not in done.stderr
