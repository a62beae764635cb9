"""A few lives of tables that go and come again under load; ``python3 dev.py soak drops`` has hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_demo.stack import KafkaBroker
from tests.soak.drops import soak_in

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_no_table_has_rows_of_a_former_one(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    soak = soak_in(kafka, None, tmp_path, topic_name, seed)
    soak.run(3)
    assert soak.counts["dropped"] + soak.counts["undropped"] + soak.counts["deleted"] == 3
