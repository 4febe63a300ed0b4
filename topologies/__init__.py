"""Mininet topologies; each file also serves `mn --custom`."""
