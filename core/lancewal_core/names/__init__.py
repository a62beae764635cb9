"""Names of everything that is stored: ``words`` are their form, ``ids`` name things, ``paths`` objects.

``proto`` has the generated messages of stored formats.

May import: errors.
"""
