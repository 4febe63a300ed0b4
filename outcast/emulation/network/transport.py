"""TCP's settings at a host: they are applied in its namespace and read back."""

from __future__ import annotations

import ctypes
import fcntl
import gzip
import os
import re
import socket
import struct
from collections.abc import Collection, Mapping
from pathlib import Path

from outcast.errors import FeatureMissingError, ReadBackError, did_you_mean
from outcast.experiment import Transport

_SYSCTL = Path("/proc/sys/net")
ALLOWED_CONGESTION_CONTROLS = _SYSCTL / "ipv4/tcp_allowed_congestion_control"
AVAILABLE_CONGESTION_CONTROLS = _SYSCTL / "ipv4/tcp_available_congestion_control"

_SIOCETHTOOL = 0x8946
_ETHTOOL_COMMANDS = {
    "tcp-segmentation-offload": (0x1E, 0x1F),
    "generic-segmentation-offload": (0x23, 0x24),
    "generic-receive-offload": (0x2B, 0x2C),
    "tx-checksumming": (0x16, 0x17),
    "rx-checksumming": (0x14, 0x15),
}
"""`offloads: false` switches these off: commands that get and set, by ethtool(8)'s long names."""


_TCP_ECN = {False: "0", True: "1", "accurate": "3"}
"""Values of tcp_ecn (Documentation/networking/ip-sysctl.rst): none, ECN and AccECN, both for
connections that a host opens and for those that it accepts."""


def sysctls(transport: Transport) -> dict[str, str]:
    """The requested settings of a host under /proc/sys/net by path (tcp(7), ip-sysctl)."""
    era: dict[str, str] = {}
    if transport.tail_loss_probe is not None:
        era["ipv4/tcp_early_retrans"] = "3" if transport.tail_loss_probe else "0"
    if transport.rack is not None:
        era["ipv4/tcp_recovery"] = str(int(transport.rack))
    if transport.pacing_ratio is not None:
        era["ipv4/tcp_pacing_ss_ratio"] = str(transport.pacing_ratio.slow_start)
        era["ipv4/tcp_pacing_ca_ratio"] = str(transport.pacing_ratio.avoidance)
    if transport.small_queue_bytes is not None:
        era["ipv4/tcp_limit_output_bytes"] = str(transport.small_queue_bytes)
    for name, buffer in (("wmem", transport.send_buffer), ("rmem", transport.receive_buffer)):
        if buffer is not None:
            era[f"ipv4/tcp_{name}"] = str(buffer)
    if transport.ecn:
        # Else the second copy of a lost SYN offers no ECN (RFC 3168, 6.1.1.1), and DCTCP is Reno.
        era["ipv4/tcp_ecn_fallback"] = "0"
    return {
        "ipv4/tcp_congestion_control": transport.congestion_control,
        "ipv4/tcp_sack": str(int(transport.sack)),
        "ipv4/tcp_ecn": _TCP_ECN[transport.ecn],
        # What one flow learns about a path must not shape the next flow of the same host.
        "ipv4/tcp_no_metrics_save": "1",
        **era,
    }


def route_metrics(transport: Transport) -> dict[str, int]:
    """The metrics of a host's routes besides the minimum RTO, by ip-route(8)'s names.

    `initcwnd` is in segments. `quickack` 1 acknowledges every segment at once.
    """
    metrics = {}
    if transport.initial_window is not None:
        metrics["initcwnd"] = transport.initial_window
    if transport.delayed_acks is not None:
        metrics["quickack"] = int(not transport.delayed_acks)
    return metrics


def check_route(host: str, requested: Mapping[str, int], read_back: Mapping[str, int]) -> None:
    """Raises ReadBackError where a route's metric differs; `rto_min` is in milliseconds."""
    for name, value in requested.items():
        # The kernel does not keep a metric of 0, because that is its default.
        effective = read_back.get(name, 0)
        if effective != value:
            raise ReadBackError(host, f"{name} of the route", value, effective)


def require_rack(transport: Transport, release: str) -> None:
    """Raises FeatureMissingError where RACK is to be off and a kernel always has it.

    From Linux 6.17 on the kernel takes the sysctl, shows its value, and ignores it: nothing reads
    TCP_RACK_LOSS_DETECTION (commit 1c120191dcec, "tcp: remove obsolete and unused RFC3517/RFC6675
    loss recovery code").
    """
    version = re.match(r"([0-9]+)\.([0-9]+)", release)
    if transport.rack is False and version and (int(version[1]), int(version[2])) >= (6, 17):
        raise FeatureMissingError(
            f"transport.rack: Linux {release} tells losses by time in any case, because Linux 6.17 "
            "removed the older way; allowed is true, or a kernel before that"
        )


def has_ipv6() -> bool:
    return bool(read_sysctl("ipv6/conf/all/disable_ipv6"))


def require_ipv6() -> None:
    if not has_ipv6():
        raise FeatureMissingError(
            "addressing: this kernel has no IPv6, or it was switched off at boot (ipv6.disable=1); "
            "allowed is addressing: ipv4, or --engine virtual"
        )


RECORDED_SYSCTLS = (
    "ipv4/tcp_rmem",
    "ipv4/tcp_wmem",
    "ipv4/tcp_timestamps",
    "ipv4/tcp_window_scaling",
    "ipv4/tcp_dsack",
    "ipv4/tcp_recovery",
    "ipv4/tcp_early_retrans",
    "ipv4/tcp_frto",
    "ipv4/tcp_limit_output_bytes",
)
"""Settings that influence TCP and that we leave alone; the manifest has their values."""


def write_sysctl(name: str, value: str, where: str) -> str:
    """Sets a value in the present namespace.

    Raises ReadBackError: the kernel refuses the value or shows another one.
    """
    path = _SYSCTL / name
    try:
        path.write_text(value)
    except OSError as error:
        raise ReadBackError(where, name, value, f"an error: {error.strerror}") from None
    read_back = read_sysctl(name)
    if read_back != value:
        raise ReadBackError(where, name, value, read_back)
    return read_back


def read_sysctl(name: str) -> str:
    """A value under /proc/sys/net in the present namespace; empty if the kernel has none."""
    try:
        return " ".join((_SYSCTL / name).read_text().split())
    except FileNotFoundError:
        return ""


def congestion_controls() -> list[str]:
    try:
        return AVAILABLE_CONGESTION_CONTROLS.read_text().split()
    except OSError:
        return []


def require_congestion_control(name: str, in_guest: Collection[str] | None, why: str = "") -> None:
    """Raises FeatureMissingError where this kernel has no congestion control of that name.

    Args:
        name: the kernel's name of it.
        in_guest: those of the virtual engine's kernel; None where no such kernel is built.
        why: the clause of the error that says why its module was not loaded.
    """
    available = congestion_controls()
    if name not in available:
        hint = did_you_mean(name, {*available, *(in_guest or ())})
        if in_guest is None:
            hint += "; the virtual engine's kernel, which scripts/guest/build makes, has others"
        elif name in in_guest:
            hint = "; the virtual engine's kernel has (--engine virtual)"
        raise FeatureMissingError(
            f"this kernel has no congestion control {name} (it has {', '.join(available)}){why}"
            f"{hint}"
        )


def allow_congestion_control(name: str, path: Path = ALLOWED_CONGESTION_CONTROLS) -> None:
    """Allows network namespaces to use a congestion control as their default.

    Only names in the *initial* namespace's list can become another namespace's default
    (net/ipv4/tcp_cong.c, tcp_set_default_congestion_control). The list belongs to the machine, so
    the caller restores it.

    Raises FeatureMissingError: neither the kernel nor a module of the run has it.
    """
    names = path.read_text().split()
    try:
        # Written even where the name is there, because each such step moves the guest's clock.
        path.write_text(" ".join(dict.fromkeys([*names, name])))
    except FileNotFoundError:
        available = sorted(congestion_controls())
        raise FeatureMissingError(
            f"the kernel has no congestion control {name} (it has {', '.join(available)}); one of "
            "your own has the name that `.name` in its struct tcp_congestion_ops gives it"
            f"{did_you_mean(name, available)}"
        ) from None
    except OSError as error:
        raise ReadBackError("this machine", path.name, name, error.strerror) from None
    if name not in path.read_text().split():
        raise ReadBackError("this machine", path.name, name, path.read_text().strip())


def configure_offloads(interface: str, *, on: bool) -> None:
    """Switches all offloads of an interface on or off, as ethtool(8) does, and reads them back.

    It starts no program, because each of two hundred interfaces would need two (linux/ethtool.h).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name, (_, command) in _ETHTOOL_COMMANDS.items():
            _ethtool(control, interface, name, command, int(on))
    for name, is_on in read_offloads(interface).items():
        if is_on is not on:
            raise ReadBackError(interface, name, on, is_on)


def read_offloads(interface: str) -> dict[str, bool]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        return {
            name: bool(_ethtool(control, interface, name, command, 0))
            for name, (command, _) in _ETHTOOL_COMMANDS.items()
        }


def _ethtool(control: socket.socket, interface: str, name: str, command: int, value: int) -> int:
    data = ctypes.create_string_buffer(struct.pack("=II", command, value), 8)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(data))
    try:
        fcntl.ioctl(control, _SIOCETHTOOL, request)
    except OSError as error:
        raise ReadBackError(interface, name, value, error.strerror) from None
    return int(struct.unpack("=II", data.raw)[1])


def kernel_hz(release: str | None = None) -> int | None:
    """CONFIG_HZ, or None if the kernel does not show it."""
    release = release or os.uname().release
    for path in (Path("/proc/config.gz"), Path(f"/boot/config-{release}")):
        try:
            raw = path.read_bytes()
        except OSError:
            continue
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        if match := re.search(rb"^CONFIG_HZ=([0-9]+)$", text, re.MULTILINE):
            return int(match[1])
    return None


def effective_min_rto_ns(min_rto_ns: int, hz: int | None) -> int | None:
    """The smallest RTO that the kernel can keep: the request, rounded up to whole jiffies.

    `rto_min` of a route is in milliseconds and becomes jiffies (include/net/tcp.h, tcp_rto_min).
    Returns None where the tick rate is unknown.
    """
    if hz is None:
        return None
    jiffy_ns = 10**9 // hz
    return -(-min_rto_ns // jiffy_ns) * jiffy_ns
