"""Changes and streams in the Spark data source.

``pinned`` plans the feed that the options ask for, with the bounds of ``plan``, and divides it into the work of ``task``.
``stream`` makes one feed after the other, and ``admission`` bounds them where PySpark can.  ``first_snapshot`` gives a stream
the rows of one state in batches.

May import: changes, plan, point, reading, spark, subscriptions, table, unmerged.
"""
