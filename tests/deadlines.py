"""How long a test waits for something that ends by itself."""

HANG_S = 300.0
"""In seconds. What takes longer hangs, because no machine is so slow. It is no measure of speed."""
