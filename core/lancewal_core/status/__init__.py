"""Where records stop on their way from Kafka to a reader: pure, so commands and services say the same of the same facts.

``facts`` is what was seen of Kafka, of stored state and of a service; ``causes`` declares what may hold records up;
``diagnose`` names the first, of a partition and of the table; ``report`` is what ``lancewal status`` and the services show:
a service keeps its newest on a ``board``.

May import: process.
"""
