"""Which version, flushes and entries make up one read.

``strong`` plans a read of now, ``at_least`` one that waits for what it must see.  ``at_point`` plans one of a point:
``at_version`` of a version alone, ``at_snapshot`` of a snapshot, ``at_receipt`` of a receipt, by a version that may
``stand_in`` for one that is gone; so do ``at_positions``, ``at_timestamp`` and ``at_record_time``, which first find theirs.
``breaks`` says where a change of the contract forbids it, and where positions lie on both sides of what breaks a table's
history.  ``open_versions`` are those that plans have pinned, ``log_entries`` what the walked logs hold by region.

``hidden`` are the merged rows that what is unmerged in a plan supersedes, kept for the next one.

May import: point, python_collector.
"""
