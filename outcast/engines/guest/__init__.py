"""The guest of the virtual engine: a User-Mode Linux kernel on the host's own file system."""
