"""Hostile payloads cost bounded memory and time, and never the process: ``hostile`` decodes them in one of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.ingest.decode.framed.hostile import MEMORY, outcomes_of
from tests.ingest.decode.framed.protobuf.hostile import cases

CASES = {case.name: case for case in cases()}


@cache
def outcomes() -> dict[str, dict[str, Any]]:
    return outcomes_of("tests.ingest.decode.framed.protobuf.hostile")


def test_every_case_is_decided() -> None:
    assert outcomes().keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_payload_is_decided_and_costs_little_memory(name: str) -> None:
    outcome, case = outcomes()[name], CASES[name]
    assert outcome["kind"] == case.kind
    assert outcome["peak"] <= 4 * outcome["bytes"] + MEMORY
