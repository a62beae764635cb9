"""Values that hold a secret do not show it in their ``repr``, which errors of other libraries and debuggers print."""

from __future__ import annotations

import pytest

from lancewal_core.open import Address
from lancewal_ingest.kafka.dead_letters import KafkaDeadLetters

CANARY = "canary-8d31"


@pytest.mark.parametrize(
    "value",
    [
        Address("s3://bucket/table", {"aws_secret_access_key": CANARY}),
        KafkaDeadLetters({"bootstrap.servers": "127.0.0.1:1", "sasl.password": CANARY}, "letters", "group"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_secret_is_shown(value: object) -> None:
    assert CANARY not in repr(value)
