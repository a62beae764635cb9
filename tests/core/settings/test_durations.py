"""Times with their unit, as texts and in settings."""

from __future__ import annotations

import pytest

from lancewal_core.errors import InvalidSettings
from lancewal_core.settings.durations import duration_s
from lancewal_core.settings.load import load_settings, setting_keys, variable

SECONDS = [key for key in setting_keys() if key.endswith("_s")]


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("90s", 90), ("10m", 600), ("2h", 7200), (" 7d ", 604_800), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "1.5h", "-1m", "1w", "10 m", "1M", "9999999999s", "10m5s"])
def test_texts_that_are_none(text: str) -> None:
    assert duration_s(text) is None


@pytest.mark.parametrize("key", SECONDS)
def test_every_setting_in_seconds_takes_a_text(key: str) -> None:
    section, _, name = key.partition(".")
    given = {variable(key): "2m"} | ({"LANCEWAL_TABLE__TTL_COLUMN": "at"} if key == "table.ttl_s" else {})
    assert getattr(getattr(load_settings(None, given), section), name) == 120
    with pytest.raises(InvalidSettings, match=name):
        load_settings(None, given | {variable(key): "2 minutes"})


def test_milliseconds_and_whole_seconds() -> None:
    assert load_settings(None, {"LANCEWAL_INGEST__LINGER_MS": "2s"}).ingest.linger_ms == 2000
    assert load_settings(None, {"LANCEWAL_INGEST__LINGER_MS": "30"}).ingest.linger_ms == 30
    with pytest.raises(InvalidSettings, match=r"table\.grace_s"):
        load_settings(None, {"LANCEWAL_TABLE__GRACE_S": "500ms"})
