"""Nodes, links, switches and their controller, and what changes them during a run."""
