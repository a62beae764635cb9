"""Names of everything that is stored.  ``words`` has the form of identifiers, ``ids`` the identifiers of things,
``paths`` the keys of objects.  ``proto`` has the generated messages of stored formats.

May import: errors.
"""
