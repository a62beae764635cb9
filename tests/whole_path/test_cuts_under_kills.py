"""Cuts of two tables of two topics on real services, while commands, services and the catalog are killed.

This is the short form of ``tests.soak.cuts``, which says what holds.  It runs until so many cuts are made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_demo.stack import KafkaBroker
from tests.soak.cuts import CutSoak
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
CUTS = 4


def test_every_cut_is_the_fold_up_to_its_positions(kafka: KafkaBroker, tmp_path: Path, seed: int) -> None:
    with PostgresServer() as postgres:
        soak = CutSoak(kafka, postgres, tmp_path, seed, lives=1, names=("shop.orders", "shop.items"))
        try:
            soak.run(lambda: soak.counts["cuts"] >= CUTS and soak.counts["kills"] > 0)
        finally:
            soak.end()
    assert soak.counts["kills"]
    assert soak.counts["checks"] >= CUTS
