"""The commands ``lancewal verify`` and ``lancewal repair``.

May import: repair, repair.index, verify.
"""
