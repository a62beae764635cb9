"""Topic ids: one text for one id, whichever client wrote it, and always fit for an object key."""

from __future__ import annotations

import base64
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.names import paths
from lancewal_core.names.ids import Page, Region, topic_id


@given(st.uuids())
def test_both_alphabets_give_kafka_s_own_text(uuid: UUID) -> None:
    kafka = base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")
    librdkafka = base64.standard_b64encode(uuid.bytes).decode().rstrip("=")
    assert topic_id(librdkafka) == topic_id(kafka) == kafka
    region = Region("t", topic_id(librdkafka), 0)
    assert paths.parse_region(region.name) == region
    page = Page.of(region, 4, None)
    assert paths.parse_page_version(paths.page_version(page, 1)) == (page, 1)
