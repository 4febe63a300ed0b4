"""A transfer by UDP with a bug that only some losses show.

`planted.py serve`, or `planted.py send HOST BUG`. Numbered datagrams go within a window until all
are acknowledged, with a recovery as NewReno's (RFC 6582). BUG is `none`, or `recovery`: two losses
in one round trip, and the sender never leaves its recovery.
"""

import socket
import sys
import time

PORT, COUNT, WINDOW, TIMEOUT_S, PATIENCE_S = 7777, 60, 16, 0.2, 3.0


def serve() -> None:
    """Receives for ever."""
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.bind(("", PORT))
    got: set[int] = set()
    expected = 0
    while True:
        data, peer = here.recvfrom(2000)
        got.add(int(data[:4]))
        while expected in got:
            expected += 1
        here.sendto(b"%04d" % expected, peer)


def answer(here: socket.socket) -> bytes | None:
    """What came, or None if nothing did in time."""
    try:
        return here.recv(2000)
    except TimeoutError:
        return None


def send(here: socket.socket, bug: str) -> None:
    """Sends all datagrams until they are acknowledged."""
    acknowledged = sent = duplicates = 0
    recover = None
    end = time.monotonic() + PATIENCE_S
    while acknowledged < COUNT:
        if time.monotonic() > end:
            sys.exit(f"stuck at {acknowledged} of {COUNT}")
        while sent < min(COUNT, acknowledged + WINDOW):
            here.send(b"%04d" % sent + bytes(996))
            sent += 1
        came = answer(here)
        if came is None:
            if recover is None or bug != "recovery":
                recover = None
                here.send(b"%04d" % acknowledged + bytes(996))
        elif came.isdigit() and int(came) > acknowledged:
            acknowledged, duplicates = int(came), 0
            if recover is not None and acknowledged >= recover:
                recover = None
            elif recover is not None and bug != "recovery":
                here.send(b"%04d" % acknowledged + bytes(996))
        elif came.isdigit():
            duplicates += 1
            if duplicates == 3 and recover is None:
                recover = sent
                here.send(b"%04d" % acknowledged + bytes(996))
    print(f"{COUNT} datagrams")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    there.settimeout(TIMEOUT_S)
    there.connect((sys.argv[2], PORT))
    send(there, sys.argv[3])
