"""``dev.py audit``: what is in the image, and what a report of known vulnerabilities says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import dev

_ROOT = Path(dev.__file__).parent


def _report(**more: object) -> str:
    return json.dumps({"dependencies": [{"name": "fine", "version": "1", "vulns": []}, {"name": "other", **more}]})


@pytest.mark.parametrize(
    ("report", "code", "says"),
    [
        (_report(version="2", vulns=[]), 0, "nothing is known of its 2 packages"),
        (_report(version="2", vulns=[{"id": "PYSEC-1", "fix_versions": ["3"]}]), 1, "other 2: PYSEC-1, mended in 3"),
        (_report(version="2", vulns=[{"id": "PYSEC-1", "fix_versions": []}]), 1, "mended in no release"),
        (_report(skip_reason="not found"), 3, "1 of 2 packages could not be looked up"),
        ("", 3, "its packages could not be looked up"),
    ],
    ids=["nothing known", "known", "not mended", "no answer about one", "nobody answers"],
)
def test_report_of_known_vulnerabilities(report: str, code: int, says: str) -> None:
    found, lines = dev.judged(report)
    assert found == code
    assert says in "\n".join(lines)


def test_image_has_what_its_dockerfile_leaves() -> None:
    """The packages that the Dockerfile's own awk keeps, told by hand here."""
    lock, dockerfile = ((_ROOT / name).read_text() for name in ("requirements.lock", "Dockerfile"))
    named = re.compile(r"^([a-z0-9][a-z0-9._-]*)==", re.MULTILINE)
    before, kept = set(named.findall(lock)), set(named.findall(dev.of_services(lock, dockerfile)))
    assert {"pylance", "pyarrow", "confluent-kafka"} <= kept
    assert before - kept >= {"pyspark", "py4j", "duckdb", "mypy", "ruff"}


@pytest.mark.parametrize("lock", [dev.MAIN_LOCK, *dev.SMALL_LOCKS])
def test_every_package_of_a_lock_has_hashes(lock: str) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", (_ROOT / lock).read_text())
    without = [e.split("==")[0] for e in entries if re.match(r"[a-z0-9]", e) and "--hash=sha256:" not in e]
    assert without == []
