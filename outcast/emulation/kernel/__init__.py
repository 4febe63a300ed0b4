"""What needs the kernel's own interfaces: netlink, sockets, counters, trace events."""
