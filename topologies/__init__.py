"""Mininet topologies. Each file also works alone: `mn --custom topologies/NAME.py --topo NAME`."""
