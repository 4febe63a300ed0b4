"""An Ethernet header for packets of scapy."""

from scapy.all import Ether

ETHERNET = Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:01")
"""Where an address is missing, scapy asks the machine's network for it, and waits for an answer."""
