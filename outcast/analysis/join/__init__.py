"""From captures to packets: pairs of the same packet, the offset of clocks, the join."""
