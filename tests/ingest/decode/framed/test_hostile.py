"""Hostile payloads cost bounded memory and time, and never the process: one process a format decodes them."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import pytest

from tests.ingest.decode.avro import hostile as avro
from tests.ingest.decode.framed.hostile import MEMORY, outcomes_of
from tests.ingest.decode.framed.protobuf import hostile as protobuf

FORMATS = {"avro": avro, "protobuf": protobuf}
CASES = {f"{name}, {case.name}": (of, case) for name, of in FORMATS.items() for case in of.cases()}


@cache
def outcomes(of: ModuleType) -> dict[str, dict[str, Any]]:
    return outcomes_of(of.__name__)


@pytest.mark.parametrize("of", FORMATS.values(), ids=FORMATS)
def test_every_case_is_decided(of: ModuleType) -> None:
    assert outcomes(of).keys() == {case.name for case in of.cases()}


@pytest.mark.parametrize(("of", "case"), CASES.values(), ids=CASES)
def test_a_hostile_payload_is_decided_and_costs_little_memory(of: ModuleType, case: avro.Case | protobuf.Case) -> None:
    outcome = outcomes(of)[case.name]
    assert outcome["kind"] == case.kind
    assert outcome["peak"] <= 4 * outcome["bytes"] + MEMORY
