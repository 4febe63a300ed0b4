"""A QUIC server that answers a request, a number of bytes as text, with that many bytes.

It makes its certificate itself. `python quic-server.py` listens at UDP port 4433.
"""

import asyncio
import datetime
import tempfile
from pathlib import Path

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Answer(QuicConnectionProtocol):
    """One connection."""

    def quic_event_received(self, event: QuicEvent) -> None:
        """Answers a request that has come whole."""
        if isinstance(event, StreamDataReceived) and event.end_stream:
            self._quic.send_stream_data(event.stream_id, bytes(int(event.data)), end_stream=True)
            self.transmit()


def certificate(folder: Path) -> tuple[Path, Path]:
    """Writes a certificate and its key into the folder; returns their files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "certificate.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, private


async def main() -> None:
    """Serves until it is ended."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["bytes"])
    with tempfile.TemporaryDirectory() as folder:
        configuration.load_cert_chain(*certificate(Path(folder)))
    await serve("0.0.0.0", 4433, configuration=configuration, create_protocol=Answer)
    print("listening", flush=True)
    await asyncio.Future()


asyncio.run(main())
