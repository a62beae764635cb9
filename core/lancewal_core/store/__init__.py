"""Object storage: the interface, what implements it, and the forms of small objects.

``object_store`` is the protocol with its three outcomes, ``folder`` a table in a local folder, ``obstore`` all others,
``versioned`` the compare-and-swap loop; ``refusal`` knows what a person sets where it lets nobody in,
``observed`` counts and times requests (``request_metrics``).
``address`` and ``place`` say where a table lies,
``object_kinds`` which objects there are, ``object_limits`` how large one may be; ``json_object`` and ``json_model`` read
stored JSON strictly, ``arrow_message`` looks into Arrow without unpacking it.

May import: errors, names, process.
"""
