"""Asks the QUIC server for a number of bytes: `python quic-client.py ADDRESS BYTES`."""

import asyncio
import ssl
import sys
import time

from aioquic.asyncio import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection


async def main(address: str, size: int) -> int:
    """Returns the exit status: 0 if all bytes came."""
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["bytes"], verify_mode=ssl.CERT_NONE
    )
    began = time.monotonic()
    # aioquic's own `connect` takes an IPv6 socket, and the guest's kernel has none.
    transport, client = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicConnectionProtocol(QuicConnection(configuration=configuration)),
        local_addr=("0.0.0.0", 0),
    )
    client.connect((address, 4433))
    await client.wait_connected()
    reader, writer = await client.create_stream()
    writer.write(str(size).encode())
    writer.write_eof()
    received = len(await reader.read())
    print(f"{received} bytes in {1000 * (time.monotonic() - began):.3f} ms")
    client.close()
    await client.wait_closed()
    transport.close()
    return int(received != size)


sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]))))
