"""Names of everything that is stored: ``words`` are their form, ``ids`` name things, ``paths`` objects.

May import: errors.
"""
