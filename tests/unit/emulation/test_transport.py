import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from outcast.emulation.network import transport
from outcast.engines import virtual
from outcast.engines.guest.kernels import Kernel
from outcast.errors import ConfigError, FeatureMissingError, ReadBackError
from outcast.experiment import Transport
from outcast.plan.flows import host_transports, negotiated_ecn


def test_sysctls_of_a_transport():
    wanted = transport.sysctls(Transport(congestion_control="bic", sack=False, ecn=True))
    assert wanted["ipv4/tcp_congestion_control"] == "bic"
    assert wanted["ipv4/tcp_sack"] == "0"
    assert wanted["ipv4/tcp_ecn"] == "1"
    assert wanted["ipv4/tcp_ecn_fallback"] == "0"
    accurate = transport.sysctls(Transport(ecn="accurate"))
    assert (accurate["ipv4/tcp_ecn"], accurate["ipv4/tcp_ecn_fallback"]) == ("3", "0")
    # Without ECN the kernel's value stays, so a kernel before Linux 4.2 needs no such setting.
    assert "ipv4/tcp_ecn_fallback" not in transport.sysctls(Transport())


@pytest.mark.parametrize(
    ("hz", "effective_ns"), [(1000, 2_000_000), (250, 4_000_000), (100, 10_000_000), (None, None)]
)
def test_the_minimum_rto_is_whole_jiffies(hz, effective_ns):
    assert transport.effective_min_rto_ns(2_000_000, hz) == effective_ns


def test_a_sysctl_that_does_not_take_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "_SYSCTL", tmp_path)
    (tmp_path / "ipv4").mkdir()
    (tmp_path / "ipv4/tcp_sack").write_text("1\n")
    assert transport.write_sysctl("ipv4/tcp_sack", "0", "h1") == "0"
    monkeypatch.setattr(transport, "read_sysctl", lambda name: "1")
    with pytest.raises(ReadBackError, match="h1: ipv4/tcp_sack: requested 0, the kernel shows 1"):
        transport.write_sysctl("ipv4/tcp_sack", "0", "h1")


def test_a_sysctl_that_is_refused_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "_SYSCTL", tmp_path)
    with pytest.raises(ReadBackError, match="No such file"):
        transport.write_sysctl("ipv4/tcp_sack", "0", "h1")


def test_allowing_a_congestion_control(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text("reno bbr\n")
    transport.allow_congestion_control("cubic", allowed)
    assert allowed.read_text().split() == ["reno", "bbr", "cubic"]
    transport.allow_congestion_control("bbr", allowed)
    assert allowed.read_text().split() == ["reno", "bbr", "cubic"]


def test_a_congestion_control_that_the_kernel_does_not_take():
    # It takes every write and shows nothing.
    with pytest.raises(ReadBackError, match="requested cubic"):
        transport.allow_congestion_control("cubic", Path("/dev/null"))


def test_a_congestion_control_that_the_kernel_lacks(tmp_path, monkeypatch):
    available = tmp_path / "available"
    available.write_text("reno cubic\n")
    monkeypatch.setattr(transport, "AVAILABLE_CONGESTION_CONTROLS", available)
    transport.require_congestion_control("cubic", ["bic"])
    with pytest.raises(FeatureMissingError, match=r"no congestion control bic .*--engine virtual"):
        transport.require_congestion_control("bic", ["bic", "cubic"])
    # Another engine is named only if it has the congestion control.
    with pytest.raises(FeatureMissingError, match=r"no congestion control cubik .* mean 'cubic'\?"):
        transport.require_congestion_control("cubik", ["bic", "cubic"])
    with pytest.raises(FeatureMissingError, match=r"no congestion control bic .*scripts/guest/"):
        transport.require_congestion_control("bic", None)


def test_a_congestion_control_that_the_guest_lacks(tmp_path):
    said = ("bic", "cubic", "reno")
    kernel = Kernel("source", "1", "recipe", "7.3.4", 1.0, "ab", tmp_path / "linux", said)
    for name in said:
        virtual.require_congestion_control(name, kernel)
    with pytest.raises(FeatureMissingError, match=r"no congestion control illinois .*--engine"):
        virtual.require_congestion_control("illinois", kernel)
    with pytest.raises(FeatureMissingError, match=r"no congestion control cubik .* mean 'cubic'\?"):
        virtual.require_congestion_control("cubik", kernel)


def test_a_congestion_control_that_no_module_brought(tmp_path, monkeypatch):
    available = tmp_path / "available"
    available.write_text("reno cubic mine\n")
    monkeypatch.setattr(transport, "AVAILABLE_CONGESTION_CONTROLS", available)

    class Kernel(type(tmp_path)):
        """The kernel answers with ENOENT to a name that it does not know."""

        def write_text(self, data: str, *_args: object, **_options: object) -> int:
            raise FileNotFoundError(2, "No such file or directory")

    allowed = Kernel(tmp_path / "allowed")
    Path(allowed).write_text("reno cubic\n")
    with pytest.raises(FeatureMissingError, match=r"has no .* min \(it has .*mine'\?"):
        transport.allow_congestion_control("min", allowed)


def test_offloads_are_checked(monkeypatch):
    shown = dict.fromkeys(transport.read_offloads("lo"), False)
    monkeypatch.setattr(transport, "_ethtool", lambda *_: 0)
    monkeypatch.setattr(transport, "read_offloads", lambda _: shown)
    transport.configure_offloads("h1-eth0", on=False)
    with pytest.raises(ReadBackError, match="tcp-segmentation-offload"):
        transport.configure_offloads("h1-eth0", on=True)
    shown["generic-receive-offload"] = True
    with pytest.raises(ReadBackError, match="generic-receive-offload"):
        transport.configure_offloads("h1-eth0", on=False)


def test_offloads_are_read_from_the_kernel():
    told = subprocess.run(["ethtool", "-k", "lo"], capture_output=True, text=True, check=True)
    for feature, is_on in transport.read_offloads("lo").items():
        assert f"{feature}: {'on' if is_on else 'off'}" in told.stdout
    with pytest.raises(ReadBackError, match="No such device"):
        transport.read_offloads("no-such")


@dataclass(frozen=True)
class Sent:
    src: str
    transport: Transport
    dst: str = "h1"


def test_a_receiver_offers_what_any_sender_wants():
    base = Transport()
    hosts = host_transports(
        base, [Sent("h2", Transport(sack=False)), Sent("h3", Transport(sack=False, ecn=True))]
    )
    assert {host: (each.sack, each.ecn) for host, each in hosts.items()} == {
        "h1": (False, True),
        "h2": (False, False),
        "h3": (False, True),
    }
    assert host_transports(base, [Sent("h2", base)])["h1"] == base
    accurate = [Sent("h2", Transport(ecn=True)), Sent("h3", Transport(ecn="accurate"))]
    assert host_transports(base, accurate)["h1"].ecn == "accurate"


def test_a_connection_has_the_ecn_that_both_ends_have():
    assert negotiated_ecn("accurate", True) is True
    assert negotiated_ecn(False, "accurate") is False
    assert negotiated_ecn("accurate", "accurate") == "accurate"


def test_what_is_left_out_is_left_to_the_kernel():
    written = transport.sysctls(Transport())
    assert not written.keys() & {*transport.RECORDED_SYSCTLS, "ipv4/tcp_pacing_ss_ratio"}
    assert transport.route_metrics(Transport()) == {}


def test_the_eras_tcp_is_sysctls_and_metrics_of_the_route():
    era = Transport.model_validate(
        {
            "initial_window": 3,
            "tail_loss_probe": False,
            "rack": False,
            "pacing": "internal",
            "pacing_ratio": {"slow_start": 100},
            "delayed_acks": False,
            "small_queue": "128KB",
        }
    )
    base = transport.sysctls(Transport())
    assert transport.sysctls(era).items() - base.items() == {
        ("ipv4/tcp_early_retrans", "0"),
        ("ipv4/tcp_recovery", "0"),
        ("ipv4/tcp_pacing_ss_ratio", "100"),
        ("ipv4/tcp_pacing_ca_ratio", "120"),
        ("ipv4/tcp_limit_output_bytes", "131072"),
    }
    assert transport.route_metrics(era) == {"initcwnd": 3, "quickack": 1}
    modern = Transport(tail_loss_probe=True, rack=True, delayed_acks=True)
    assert transport.sysctls(modern).items() >= {
        ("ipv4/tcp_early_retrans", "3"),
        ("ipv4/tcp_recovery", "1"),
    }
    assert transport.route_metrics(modern) == {"quickack": 0}


def test_a_metric_that_does_not_take_is_an_error():
    shown = {"rto_min": 2, "initcwnd": 3}
    transport.check_route("h1", {"rto_min": 2, "initcwnd": 3, "quickack": 0}, shown)
    with pytest.raises(ReadBackError, match=r"h1: initcwnd of the route: requested 4, .* shows 3"):
        transport.check_route("h1", {"initcwnd": 4}, shown)
    with pytest.raises(ReadBackError, match=r"quickack of the route: requested 1, .* shows 0"):
        transport.check_route("h1", {"quickack": 1}, shown)


def test_rack_cannot_be_off_where_the_kernel_ignores_that():
    off = Transport(rack=False)
    transport.require_rack(off, "6.1.0-32-amd64")
    transport.require_rack(Transport(rack=True), "7.3.4")
    for release in ("7.3.4", "6.17.0-1-amd64"):
        with pytest.raises(FeatureMissingError, match=rf"transport.rack: Linux {release} tells"):
            transport.require_rack(off, release)


def test_the_era_belongs_to_a_host():
    base = Transport()
    era = Transport(initial_window=3, delayed_acks=False)
    hosts = host_transports(base, [Sent("h2", era)])
    assert (hosts["h2"].initial_window, hosts["h2"].delayed_acks) == (3, None)
    # Who receives acknowledges; who sends has the window.
    assert (hosts["h1"].initial_window, hosts["h1"].delayed_acks) == (None, False)
    with pytest.raises(ConfigError, match="differ in initial_window have flows of h2"):
        host_transports(base, [Sent("h2", era), Sent("h2", base)])
    with pytest.raises(ConfigError, match=r"differ in delayed_acks have flows of h1.*, received"):
        host_transports(base, [Sent("h2", era), Sent("h3", base)])


def test_buffers_are_a_size_or_three():
    from outcast.experiment.transport import Transport as Settings

    tcp = Settings.model_validate(
        {"send_buffer": "1MB", "receive_buffer": {"min": "4KB", "default": "1MB", "max": "64MB"}}
    )
    shown = transport.sysctls(tcp)
    assert shown["ipv4/tcp_wmem"] == "4096 16384 1048576"
    assert shown["ipv4/tcp_rmem"] == "4096 1048576 67108864"
    small = Settings.model_validate({"receive_buffer": "5000B"})
    assert transport.sysctls(small)["ipv4/tcp_rmem"] == "4096 5000 5000"
    for too_small in ("1B", "4095B", {"min": "2KB", "default": "4KB", "max": "8KB"}):
        for name in ("send_buffer", "receive_buffer"):
            with pytest.raises(ValueError, match="allowed is 4KB or more, a page"):
                Settings.model_validate({name: too_small})
    assert Settings.model_validate(tcp.model_dump(mode="json", by_alias=True)) == tcp
    for wrong in ("3x", {"min": "4KB"}, {"min": "4KB", "default": "1KB", "max": "1MB"}, "0B"):
        with pytest.raises(ValueError, match="buffer"):
            Settings.model_validate({"receive_buffer": wrong})
