"""Findings: all are counted, the first of each kind and place are kept."""

from __future__ import annotations

from lancewal_audit.verify.report import MERGED, READ, Finding, Findings


def test_what_is_only_counted_need_not_be_shown() -> None:
    findings = Findings(1)
    assert findings.keeps("differs", READ)
    for _ in range(2):
        findings.add(Finding("differs", READ, ""))
        assert not findings.keeps("differs", READ)
    assert findings.keeps("differs", MERGED)
    assert findings.keeps("missing", READ)
    assert (findings.counts["differs"], len(findings.kept)) == (2, 1)
