"""Whether a store keeps what the protocol needs of it.

``store_probe`` lets several writers race for one object.  ``store_proof`` records that a store has passed, and asks it
again at every start.  ``store_check`` tries all that tables need, for a person who chooses a store.

May import: errors, names, process, store.
"""
