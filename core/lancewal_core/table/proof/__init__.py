"""Checks whether a store keeps the promises that the protocol needs.

``store_probe`` lets several writers put one object at the same time.  ``store_proof`` records that a store has passed
the probe, and tests it again at every start of a service.  ``store_check`` tests everything that tables need, for a
person who chooses a store.

May import: errors, names, process, store.
"""
