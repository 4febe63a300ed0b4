"""Reading capture files: pcap and pcapng blocks, and the headers of packets."""
