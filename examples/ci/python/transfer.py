"""Serves bytes at a port, or gets them: `transfer.py serve`, `transfer.py get HOST`."""

import socket
import sys

PORT, SIZE = 7777, 1_000_000


def serve() -> None:
    server = socket.create_server(("", PORT))
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(bytes(SIZE))


def get(host: str) -> int:
    with socket.create_connection((host, PORT)) as connection:
        return sum(len(data) for data in iter(lambda: connection.recv(65536), b""))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    print(get(sys.argv[2]))
