"""What captures of others can be that is not read, and the command that makes it readable.

docs/own-captures.md has the same as a table. In commands `IN` is the capture, `OUT` a new file.
"""

from __future__ import annotations

LINKS = {
    9: ("PPP", "editcap -L -C 4 -T rawip IN OUT"),
    104: ("Cisco HDLC", "editcap -L -C 4 -T rawip IN OUT"),
    197: ("ERF", "editcap -L -C -4 -T ether IN OUT"),
}
"""Link types by number (tcpdump.org/linktypes.html), with their names."""

OTHER_LINK = "tcpdump -i any -y LINUX_SLL2 -w OUT"
"""Of all others: it captures what is read, whatever the interface."""

ENCAPSULATIONS = {
    0x8847: ("MPLS", "editcap -L -C 18 -T rawip IN OUT"),
    0x8848: ("MPLS", "editcap -L -C 18 -T rawip IN OUT"),
    0x8864: ("PPPoE", "editcap -L -C 22 -T rawip IN OUT"),
    0x88E7: ("802.1ah", "editcap -L -C 18 IN OUT"),
    0x893F: ("802.1BR", "editcap -L -C 12:8 IN OUT"),
    0x8903: ("FabricPath", "editcap -L -C 16 IN OUT"),
}
"""What stands between a frame's addresses and IP, by its EtherType."""

MIRRORED = "editcap -L -C 50 IN OUT"
"""Takes off the headers of ERSPAN II or VXLAN. ERSPAN I has 38 bytes, ERSPAN III 54."""

FORMATS = (
    (b"\xa1\xb2\xcd\x34", "a pcap of a patched libpcap"),
    (b"\x34\xcd\xb2\xa1", "a pcap of a patched libpcap"),
    (b"snoop\0\0\0", "a capture of snoop"),
    (b"GMBU", "a capture of Microsoft Network Monitor"),
    (b"RTSS", "a capture of Microsoft Network Monitor"),
)
"""What files of other captures begin with."""

CONVERTS = "editcap IN OUT"
"""Makes pcapng of every format that Wireshark reads."""

COMPRESSORS = {
    b"PK\x03\x04": ("zip", "unzip"),
    b"7z\xbc\xaf": ("7-Zip", "7z x"),
    b"BZh": ("bzip2", "bzip2 -d"),
    b"\xfd7zXZ\0": ("xz", "xz -d"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -d"),
    b"\x02\x21\x4c\x18": ("lz4", "lz4 -d"),
    b"\x1f\x9d": ("compress", "uncompress"),
}
"""What files of other compressors begin with, and what decompresses them."""
