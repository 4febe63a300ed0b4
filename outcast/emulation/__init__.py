"""What needs a kernel: the network, its queues, hosts' settings, captures and traffic."""
