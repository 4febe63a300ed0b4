"""What joined packets, counters and samples say: queues, blackouts, TCP, fairness."""
