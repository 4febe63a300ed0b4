"""The virtual engine's kernel: User-Mode Linux, made from the distribution's own source package."""
