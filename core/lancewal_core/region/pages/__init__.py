"""Pages: the states of many regions in few objects.

``packed_record`` is a region's state as it lies in a page.  ``state_page`` is one version of a page: a head, and a
record of each region.  ``page_chain`` finds a page's newest version and swaps it for the next.

May import: errors, names, names.proto, process, store.
"""
