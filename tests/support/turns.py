"""Cases of a test that take turns: a run has some of them, ``--every-case`` all, as ``dev.py soak every-case`` does.

``@pytest.mark.in_turns("damage", "command", each=2)``: of the combinations of these parameters one in so many, such that each
value of each parameter comes with other values of the others.  With one parameter, tests begin their turns at different
values.  A case that is named on the command line always runs.  Which cases a run has depends on nothing else: it is the same
everywhere.

``@pytest.mark.in_turns``: the whole test waits for ``--every-case``.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable

import pytest


def not_now(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Cases that wait for ``--every-case``, of all that were collected."""
    seen = defaultdict[tuple[str, str], list[object]](list)
    waiting: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("in_turns")
        if mark is not None and not mark.args:
            waiting.append(item)
            continue
        if mark is None or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        axes = [name for name in mark.args if name in item.callspec.params]
        turn = zlib.crc32(item.originalname.encode()) if len(axes) == 1 else 0
        for name in axes:
            value, known = item.callspec.params[name], seen[item.nodeid.partition("[")[0], name]
            if value not in known:
                known.append(value)
            turn += known.index(value)
        if axes and turn % mark.kwargs["each"] != 0:
            waiting.append(item)
    return waiting
