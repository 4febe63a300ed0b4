"""From the kernel's ring buffer to tables of events that are joined to the run's packets."""
