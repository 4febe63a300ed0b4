"""Hostile captures for the readers: `python -m tests.golden.fuzz --seconds 600 [--seed N]`.

Captures of every format are damaged at random: bits, lengths, order, ends, before they are
compressed and after it. Each must be read, or refused in one line, within a second of the
processor's time and within bounds of memory; and what is read must not depend on bytes outside of
the file. Run it with NUMBA_BOUNDSCHECK=1 (and a NUMBA_CACHE_DIR of its own), so that compiled code
checks its indices.
"""

import argparse
import gzip
import random
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard

from outcast.analysis.capture import records
from outcast.analysis.capture.pcap import PortCapture, read_capture
from outcast.analysis.join.join import join
from outcast.errors import InputError, UntrustedError
from tests.golden import model

SECONDS_EACH = 1.0
"""Of the processor's time, because the machine can be busy with something else."""
MEMORY_BYTES = 800 << 20

COMPRESSORS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    zstandard.compress,
)


def seeds() -> list[bytes]:
    """Whole captures to damage."""
    traffic = model.drop_tail(model.make_traffic(1, 12), 16_384, 10**9)
    plain = model.PCAP_HEADER + model.captures(traffic)["in1"].tobytes()
    frames = [plain[24 + 82 * n + 16 : 24 + 82 * (n + 1)] for n in range(6)]
    six = bytes.fromhex("86dd6000000000200640") + bytes(range(32)) + frames[0][34:66]
    tagged = frames[0][:12] + bytes.fromhex("8100000388a80004") + frames[0][12:]
    hop = frames[0][:12] + bytes.fromhex("86dd6000000000280040") + bytes(range(32))
    hop += bytes.fromhex("0600010400000000") + frames[0][34:66]
    fragment = frames[0][:20] + b"\x20\x03" + frames[0][22:]
    bodies = [*frames, frames[0][:12] + six, tagged, hop, fragment]
    made = [plain]
    for link, cut, head in (
        (1, 0, b""),
        (113, 14, bytes(14) + b"\x08\0"),
        (276, 14, b"\x08\0" + bytes(18)),
        (101, 14, b""),
    ):
        for order, magic in (("<", 0xA1B23C4D), (">", 0xA1B2C3D4)):
            made.append(_pcap(order, magic, link, [head + body[cut:] for body in bodies]))
        for order in "<>":
            made.append(_pcapng(order, link, [head + body[cut:] for body in bodies]))
    carried = [*bodies, *(_carried(frames[0]))]
    for order in "<>":
        made.append(_pcapng(order, 1, carried))
        made.append(_pcap(order, 0xA1B23C4D, 1, carried))
    return [*made, *(compress(made[1]) for compress in COMPRESSORS)]


def _carried(frame: bytes) -> list[bytes]:
    """The frame as ERSPAN, GRE, VXLAN, MPLS and PPPoE carry it, VXLAN over IPv6."""
    gre = bytes.fromhex("450003e800010000402f0000c0000201c0000209")
    four = frame[:12] + b"\x08\0" + gre
    six = frame[:12] + bytes.fromhex("86dd60000000 03e8 1140") + bytes(32)
    return [
        four + bytes.fromhex("100088be00000001 1005200100000042") + frame,
        four + bytes.fromhex("b0006558 0000000000000007 00000001") + frame,
        six + bytes.fromhex("c35012b503e80000 0800000000000700") + frame,
        frame[:12] + bytes.fromhex("8847 00011140") + frame[14:],
        frame[:12] + bytes.fromhex("8864 110000010000 0021") + frame[14:],
    ]


def _pcap(order: str, magic: int, link: int, bodies: list[bytes]) -> bytes:
    out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for number, body in enumerate(bodies):
        out += struct.pack(order + "IIII", 5, number, len(body), len(body)) + body
    return out


def _pcapng(order: str, link: int, bodies: list[bytes]) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + size + body + size

    out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    options = struct.pack(order + "HHB3xHHqHH", 9, 1, 9, 14, 8, 1, 0, 0)
    out += block(1, struct.pack(order + "HHI", link, 0, 0) + options)
    for number, body in enumerate(bodies):
        head = struct.pack(order + "IIIII", 0, 1, number, len(body), len(body))
        out += block(6, head + body)
    return out


def damage(content: bytes, rng: random.Random) -> bytes:
    """The content with up to eight random damages."""
    hurt = bytearray(content)
    for _ in range(rng.randint(0, 8)):
        if not hurt:
            break
        at = rng.randrange(len(hurt))
        match rng.randrange(7):
            case 0:
                hurt[at] ^= 1 << rng.randrange(8)
            case 1:
                hurt[at] = rng.choice((0, 1, 4, 5, 6, 0x40, 0x7F, 0x80, 0xFF))
            case 2:
                word = rng.choice((0, 1, 8, 2**31 - 1, 2**31, 2**32 - 1, rng.getrandbits(32)))
                hurt[at : at + 4] = struct.pack(rng.choice("<>") + "I", word)
            case 3:
                del hurt[at : at + rng.randint(1, 40)]
            case 4:
                hurt[at:at] = rng.randbytes(rng.randint(1, 40))
            case 5:
                other = rng.randrange(len(hurt))
                hurt[at : at + 16] = hurt[other : other + 16]
            case 6:
                hurt = hurt[: at + 1]
    return bytes(hurt)


def damaged(bases: list[bytes], rng: random.Random) -> bytes:
    """One of the captures, damaged before or after it is compressed, or not compressed."""
    content = damage(rng.choice(bases), rng)
    if rng.random() < 0.2:
        content = damage(rng.choice(COMPRESSORS)(content), rng)
    return content


def read(path: Path, fill: int) -> PortCapture | str:
    """Reads a capture while the reader's unused memory is filled. Returns the refusal, if any."""
    begin = records._Source.__init__

    def filled(self: records._Source, *arguments: object) -> None:
        begin(self, *arguments)
        self.data[:] = fill

    records._Source.__init__ = filled
    try:
        return read_capture("port", path)
    except InputError as error:
        return str(error)
    finally:
        records._Source.__init__ = begin


def warm(bases: list[bytes], folder: Path) -> None:
    """Reads captures that are whole, so that compiling at the first use does not count as slow."""
    for base in [*bases, *bases]:
        try:
            check(base, folder)
        except AssertionError as error:
            if "slow" not in str(error):
                raise


def check(content: bytes, folder: Path) -> None:
    """Raises AssertionError, or any exception that the reader should not have raised."""
    path = folder / "hostile"
    path.write_bytes(content)
    began, peak_before = time.process_time(), _peak_bytes()
    one = read(path, 0x00)
    other = read(path, 0xFF)
    if isinstance(one, str) or isinstance(other, str):
        assert one == other, (one, other)
        assert isinstance(one, str)
        assert "\n" not in one
    else:
        assert one.flows == other.flows
        for left, right in zip(one.columns, other.columns, strict=True):
            assert np.array_equal(left, right)
        try:
            join([one], [other])
            refusal = ""
        except (InputError, UntrustedError) as error:
            refusal = str(error)
        assert "\n" not in refusal
    assert time.process_time() - began < SECONDS_EACH, "too slow"
    # Other tests of the process may have had more.
    assert _peak_bytes() < max(MEMORY_BYTES, peak_before + 1), f"{_peak_bytes()} bytes"


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Runs for the given time, and keeps the first file that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    rng = random.Random(wanted.seed)
    bases = seeds()
    records.BLOCK_BYTES = 1 << 16
    done = 0
    with tempfile.TemporaryDirectory() as name:
        for base in bases:
            path = Path(name) / "hostile"
            path.write_bytes(base)
            assert not isinstance(read(path, 0), str), read(path, 0)
        warm(bases, Path(name))
        ends = time.monotonic() + wanted.seconds
        while time.monotonic() < ends:
            content = damaged(bases, rng)
            try:
                check(content, Path(name))
            except BaseException:
                kept = Path(tempfile.gettempdir()) / f"outcast-fuzz-{wanted.seed}-{done}"
                kept.write_bytes(content)
                print(f"failed after {done} files; kept {kept}", file=sys.stderr)
                raise
            done += 1
    print(f"{done} files, no failure")


if __name__ == "__main__":
    main()
