"""A region index that is lost or damaged, made again.

``evidence`` is what is left, ``entry_chain`` finds a way through the entries, ``generations`` chooses, ``repair``
writes.

May import: repair.
"""
