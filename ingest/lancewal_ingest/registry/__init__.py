"""The schemas that records name: from a schema registry into objects of the table.

``registry`` is the door to a registry, and ``confluent`` the one that is there.  ``lookups`` finds the schemas that consumed
records name.  ``comparison`` finds out whether a registry has given an id to another schema.  ``asked`` are schemas
straight from a registry, for a look at records before there is a table.

May import: nothing of this package.
"""
