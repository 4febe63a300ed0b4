"""How long a test waits for something that ends by itself."""

HANG_S = 300.0
"""Seconds. What takes longer hangs: no machine is so slow or so busy. It is no measure of speed."""
