"""The virtual engine's kernel: User-Mode Linux, built from the distribution's source package."""
