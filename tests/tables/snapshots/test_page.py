"""What stands on the page of named snapshots runs as it stands."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lancewal_core.cli.program import run
from tests.public.test_public_names import programs
from tests.support.pipeline import Pipeline

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "keep-a-snapshot.md"
ADDRESS = "s3://bucket/orders"


def test_the_commands_and_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, other = (Pipeline(tmp_path / name, seed=3, seal_rows=20) for name in ("a", "b"))
    for pipeline in (made, other):
        pipeline.produce(40)
        pipeline.merge_all()
        pipeline.produce(30)
        pipeline.ingest()
    now = datetime.now(UTC).isoformat()
    texts = {"s3://lake/orders-by-day": other.uri, "s3://lake/orders": made.uri, "2026-01-31T00:00:00Z": now}
    page = PAGE.read_text(encoding="utf-8")
    commands = [line.removeprefix("$ lancewal ") for line in page.splitlines() if line.startswith("$ lancewal ")]
    assert len(commands) == 5
    monkeypatch.setenv("LANCEWAL_TABLE__URI", made.uri)
    names: dict[str, object] = {}
    for at, command in enumerate(commands):
        if at == 2:  # the same name once more, of two tables
            assert run(["snapshot", "drop", "end-of-month", "--yes"]) == 0
        for text, there in texts.items():
            command = command.replace(text, there)
        if command.startswith("snapshot list"):
            for number, program in enumerate(programs(page)):
                exec(compile(program.replace(ADDRESS, made.uri), f"{PAGE.name}, program {number + 1}", "exec"), names)
            branch, rows = names["branch"], names["rows"]
            assert branch.count_rows() == rows.to_arrow().num_rows == len(made.oracle)  # type: ignore[attr-defined] # of the page
        assert run(shlex.split(command)) == 0, command
    made.close()
    other.close()
