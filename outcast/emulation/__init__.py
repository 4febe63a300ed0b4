"""The parts that need a kernel: the network, its queues, hosts' settings, captures and traffic."""
