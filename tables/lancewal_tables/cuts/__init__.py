"""Kept cuts: snapshots of several tables at positions that belong together, under one name of a catalog.

``make`` makes a cut, and ``drop`` drops it.  ``left_over`` finds snapshots that an interrupted `cut make` left.
``held`` checks whether a cut is complete, and how many bytes its snapshots keep from deletion.

May import: snapshots.
"""
