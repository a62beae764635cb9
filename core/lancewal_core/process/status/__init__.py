"""Finding where records stop on their way from Kafka to a reader.  Pure, so commands and services agree on the same
facts.

``facts`` is what was seen of Kafka, of stored state and of a service.  ``causes`` declares everything that may hold
records up.  ``diagnose`` names the first cause, for a partition and for the table.  ``report`` is what ``lancewal
status`` and the services show, with the ``widenings`` that are open.  A service keeps its newest report on a ``board``.

May import: errors, process, rows, table.
"""
