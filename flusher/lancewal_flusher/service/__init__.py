"""The flusher service.

``service`` runs a ``round`` of merging and the turns between (``compaction_turns``, ``expiry_turns``), as ``schedule``
and ``limits`` say; ``backlog`` and ``metrics`` show what waits and what happens.

May import: commit, context, garbage, merge, open, upkeep.
"""
