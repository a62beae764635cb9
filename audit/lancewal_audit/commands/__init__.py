"""The commands of the part: ``verify`` is ``lancewal verify``, and ``repair`` is ``lancewal repair``.

May import: repair, repair.index, verify.
"""
