"""The surroundings of a process, each passed as a parameter.  Nothing of the protocols is in here.

Time is in ``clock``, concurrency in ``tasks``.  ``start`` begins a service and ``stop_signals`` ends it; ``failpoints``
are points to fail at.  ``health`` serves probes and metrics, ``silence`` watches for stores and brokers that do not
answer, and ``metric_table`` and ``service_metrics`` declare metrics.  ``event_table`` and ``service_events`` are log
events.  ``library_errors`` reads the texts of other libraries' errors.  ``progress`` says how far long work is, and
``status`` where records stop.

May import: errors.
"""
