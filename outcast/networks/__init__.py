"""Networks from files of the user's: a Mininet `Topo` in Python, or a graph.

`resolve` is the one place that reads such a file, and the one place that runs a user's Python.
"""
