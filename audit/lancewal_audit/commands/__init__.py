"""The commands ``lancewal verify`` and ``lancewal repair``, each in its own module.

May import: repair, repair.index, verify.
"""
