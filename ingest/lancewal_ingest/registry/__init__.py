"""The schemas that records name: from a schema registry into objects of the table.

``registry`` is the door to a registry, and ``confluent`` the one that is there.  ``lookups`` finds the schemas that consumed
records name, and lets their partitions wait.  ``comparison`` finds out whether a registry has given an id to another schema.

May import: nothing of this package.
"""
