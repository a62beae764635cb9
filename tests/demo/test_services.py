"""A child that fails shows why."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_core.settings.load import load_settings
from lancewal_demo.services import Services, write_settings
from lancewal_demo.stack import StackFailed


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    # Nobody listens there.
    return write_settings(tmp_path / "s.yaml", tmp_path / "table", "127.0.0.1:1", "flights", 100)


def test_the_settings_are_valid(settings: Path) -> None:
    loaded = load_settings(settings, {})
    loaded.need("table.uri", "table.columns", "table.primary_key", "table.region_key", "kafka.bootstrap_servers")
    assert set(loaded.table.region_key) <= set(loaded.table.primary_key) <= set(loaded.table.columns)


def test_a_command_that_fails_shows_the_end_of_its_log(tmp_path: Path, settings: Path) -> None:
    settings.write_text("kafka: {toppic: flights}\n")
    with Services(tmp_path, settings) as services, pytest.raises(StackFailed, match=r"(?s)create\.log.*toppic"):
        services.run_command("create", "table", "create")


def test_a_service_that_ends_is_noticed_while_waiting(tmp_path: Path, settings: Path) -> None:
    with Services(tmp_path, settings) as services:
        services.start_follower(tmp_path / "nothing", tmp_path / "sights.jsonl")
        with pytest.raises(StackFailed, match=r"(?s)follower ended with exit code 1.*TableMissing"):
            services.wait_until(lambda: False, "the end", 60)


def test_what_runs_is_stopped_at_the_end(tmp_path: Path, settings: Path) -> None:
    with Services(tmp_path, settings) as services:
        services.start_follower(tmp_path / "nothing", tmp_path / "sights.jsonl")
        process = services._running["follower"]
        assert process.exit_code is None
    assert process.exit_code is not None
