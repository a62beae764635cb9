"""Keeping optional libraries out of the program that other libraries would import and no command uses.

``pandas``: Arrow looks for it when it makes its first value.  That is a fifth of what a service imports.  No command
takes or gives a value of pandas.  If PySpark is loaded, it gets pandas as usual.

``rich``: structlog looks for it to show tracebacks.  Lancewal's log shows them without it.

Only the program ``lancewal`` does this.  In another program, a library must not decide about imports.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Absent(MetaPathFinder):
    def __init__(self, name: str, unless: str | None = None) -> None:
        self._name = name
        self._unless = unless

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == self._name and self._unless not in sys.modules:
            raise ModuleNotFoundError(f"no command of lancewal uses {fullname}", name=fullname)


def without_pandas() -> None:
    """Keep pandas out for the rest of the process, or until PySpark is loaded."""
    sys.meta_path.insert(0, _Absent("pandas", unless="pyspark"))


@contextmanager
def without_rich() -> Iterator[None]:
    """Keep rich out while the block runs."""
    absent = _Absent("rich")
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)
