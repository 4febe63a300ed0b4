"""The guest's own root file system: Debian packages and wheels, pinned in a lock, unpacked."""
