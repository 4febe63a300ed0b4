"""Qdiscs: set up, changed while they hold packets, and read back, for every port."""
