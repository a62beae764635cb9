"""Certificates of one run, and one broker that asks for them and for passwords."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.certificates import Certificates, make_certificates
from tests.support.guarded_broker import Guarded, guarded_broker


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def guarded(tls: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(tmp_path_factory.mktemp("guarded"), tls) as started:
        yield started
