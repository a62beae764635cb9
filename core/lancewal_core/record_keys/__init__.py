"""Kafka keys of records: their formats, and the partitions in which producers put them.

``key_choices`` names the formats and partitioners.  ``key_format`` says for each format whether keys can be decoded,
and whether a row tells the key that its record had.  ``key_form`` names the schema of keys that have one (the key
form).  ``json_compact`` writes keys as Kafka Connect does, and ``key_text`` as a given producer does.
``partitioner`` has the partitioners of Kafka's clients, for one key and for many, and ``why_misrouted`` says why a
record lies in a wrong partition.

May import: errors, names, rows.
"""
