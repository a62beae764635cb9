"""The schemas that records name: from a schema registry into objects of the table.

``registry`` is the interface to a registry, and ``confluent`` implements it over Confluent's API.  ``lookups`` looks
up the schemas that consumed records name, and stores them.  ``comparison`` finds out whether a registry has given an
id to another schema.  ``asked`` reads schemas from a registry without storing them, for commands that show records
before there is a table.

May import: nothing of this package.
"""
