"""Twins: the boundaries of lancewal in memory, deterministic, with faults; for the tests and the simulation.

``memory_store`` and ``memory_table`` hold what store and table hold, ``faults`` fail them; ``scheduler`` chooses who goes
on, for ``sim_tasks`` and ``sim_clock``.
"""
