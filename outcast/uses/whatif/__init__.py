"""A run with other fates of its packets, and from when on an outcome was decided."""
