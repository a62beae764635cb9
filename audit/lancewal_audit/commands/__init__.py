"""The commands ``lancewal verify`` and ``lancewal repair``, a module each.

May import: repair, repair.index, verify.
"""
