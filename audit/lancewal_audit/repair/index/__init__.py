"""Rebuild a region index that is lost or damaged.

``evidence`` reads what is left, ``entry_chain`` finds a chain of entries, ``generations`` chooses the generations,
and ``repair`` writes the index.

May import: repair.
"""
