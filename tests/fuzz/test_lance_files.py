"""Lance's own files, damaged by who may write into the folder: a value or an error of ours, in bounded memory and time.

A small part of what ``hostile_lance.run`` tries.  Where Lance's native code ends the process, that is a limit that
``docs/reference/trust.md`` names; it is counted here and must stay rare.
"""

from __future__ import annotations

import pytest

from tests.fuzz.hostile_lance import KINDS, run

CASES = 32
NATIVE = "SIGABRT"
"""A panic of Rust code beneath a call from C ends the process, whatever a caller does."""


def test_damaged_files_of_lance(request: pytest.FixtureRequest) -> None:
    factor = request.config.getoption("--fuzz-factor")
    tried = run(600.0 * factor, seed=factor, cases_max=CASES * factor)
    assert tried.cases == CASES * factor
    assert {outcome.partition(":")[0] for outcome in tried.outcomes} == KINDS.keys()
    aborted = [text for text in tried.wrong if NATIVE in text]
    assert [text for text in tried.wrong if text not in aborted] == []
    assert len(aborted) <= CASES * factor // 10
