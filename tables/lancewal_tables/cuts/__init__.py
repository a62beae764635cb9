"""Kept cuts: snapshots of several tables at positions that belong together, under one name of a catalog.

``make`` makes a cut, and ``drop`` drops it.  ``left_over`` finds snapshots of makings that did not end.  ``held`` looks
whether a cut is whole, and what it holds in bytes.

May import: snapshots.
"""
