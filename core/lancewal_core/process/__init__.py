"""What a process has around it, each as a parameter: nothing of the protocols is in here.

Time (``clock``), concurrency (``tasks``), a service's begin and end (``start``, ``stop_signals``), points to fail at
(``failpoints``), probes and metrics (``health``, ``silence`` of what is waited for, ``metric_table``,
``service_metrics``), log events (``event_table``, ``service_events``), texts of other libraries' errors
(``library_errors``), how far long work is (``progress``).

May import: errors.
"""
