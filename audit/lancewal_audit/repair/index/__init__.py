"""Rebuild the state of a region if it is lost or damaged.  The code also calls the state the region's index.

``evidence`` reads what is left, ``entry_chain`` finds a chain of entries, ``generations`` chooses the generations,
and ``repair`` writes the state.

May import: repair.
"""
