"""A small archive of Debian packages on the loopback interface, and locks of its packages."""

import contextlib
import functools
import hashlib
import io
import lzma
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from outcast.engines.root.lock import Kind, Lock, Package


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """A member of a tar file; `fields` are those of TarInfo."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.DIRTYPE, mode=0o755)


def debian_package(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """The bytes of a package that installs these members."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": lzma.compress(b""),
        "data.tar.xz": lzma.compress(packed.getvalue()),
    }
    text = b"!<arch>\n"
    for name, data in parts.items():
        text += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        text += data + b"\n" * (len(data) % 2)
    return text


def pinned(name: str, data: bytes) -> Package:
    return Package(
        name=name,
        version="1:1.0-1",
        architecture="amd64",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        path=f"pool/main/{name[0]}/{name}/{name}_1%3a1.0-1_amd64.deb",
    )


def lock_of(packages: Mapping[str, bytes], content: Mapping[Kind, str] | None = None) -> Lock:
    """A lock whose guest's root has these packages."""
    return Lock(
        suite="bookworm",
        snapshot="20260711T101637Z",
        content=content or {},
        runtime=tuple(pinned(name, data) for name, data in sorted(packages.items())),
        kernel_source=pinned("linux-source", b""),
    )


def store(at: Path, packages: Mapping[str, bytes]) -> Path:
    """Writes packages into a folder as an archive has them. Returns the folder."""
    for name, data in packages.items():
        path = at / pinned(name, data).path.replace("%3a", ":")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return at


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_words: object) -> None:
        pass


@contextlib.contextmanager
def served(at: Path) -> Iterator[str]:
    """The address of a server of a folder's files."""
    handler = functools.partial(_Quiet, directory=str(at))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
