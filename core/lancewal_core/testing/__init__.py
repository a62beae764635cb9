"""Twins: the boundaries of lancewal in memory, deterministic, with faults; for tests of lancewal and of its users.

``memory_store`` and ``memory_table`` hold what store and table hold, ``faults`` fail them; ``scheduler`` chooses who goes
on, for ``sim_tasks`` and ``sim_clock``.
"""
