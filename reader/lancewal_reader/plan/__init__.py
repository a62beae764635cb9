"""Plan reads: choose the table version, the flushes and the WAL entries that make up one read.

``strong`` plans a read of now, and has the classes of every plan, ``ReadPlan`` and ``PlanContext``.  ``at_least``
plans one that waits for the records that it must see.  ``at_point`` plans a read of a point: ``at_version``,
``at_receipt``, ``at_positions``, ``at_timestamp`` or ``at_record_time``; the last three first find version and
positions.  ``lineage`` says what the commits of versions did, and ``stand_in`` finds a version that may replace one
that is gone.  ``breaks`` refuses such a replacement across certain changes of the contract.  It also refuses
positions on both sides of a break of the table's history.  ``kept`` caches the versions that were opened most
recently.  ``log_entries`` caches the entries of logs, by region.  To *walk* a log means to read its segments in
order.  ``python_collector`` lets Python look for cycles less often while a read makes many objects.

May import: point.
"""
