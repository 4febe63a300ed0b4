"""Mininet topologies; each file works alone: `mn --custom topologies/NAME.py --topo NAME`."""
