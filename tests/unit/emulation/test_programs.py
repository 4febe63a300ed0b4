"""Programs of a configuration: what is asked, planned, started, and found in the captures."""

import json
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast import cli, experiment, files
from outcast.api import guest
from outcast.emulation import standalone
from outcast.emulation.programs import folders, launch, supervisor
from outcast.engines import program_files, virtual
from outcast.engines.guest import world
from outcast.engines.guest.kernels import Kernel
from outcast.engines.guest.world import World
from outcast.engines.virtual import VirtualEngine
from outcast.errors import ConfigError, FeatureMissingError
from outcast.plan import stored
from outcast.plan.make import make_plan, plan_of_command
from outcast.plan.programs import Command, fill, with_files
from outcast.records.flows import ExecutionRecord
from outcast.records.run_directory import RunDirectory

BASE = """
name: web
topology: {kind: linear, rivals: 3}
links: {rate: 100mbit}
queue: {kind: tbf, limit: 16KB}
duration: 400ms
programs:
  - {name: web, host: h1, command: [python3, -m, http.server, 80], ready: {port: 80}}
  - {name: get, host: h4, command: [curl, -s, "http://{h1}/"], start: 100ms, repeat: 20}
"""

HOSTS = {"h1": ("10.0.0.1",), "h2": ("10.0.0.2",)}
OF_BOTH = {
    "h1": ("10.0.0.1", "fd00::a00:1"),
    "h2": ("10.0.0.2", "fd00::a00:2"),
    "h16": ("10.0.0.22", "fd00::a00:16"),
}
OF_IPV6 = {name: (ipv6,) for name, (_, ipv6) in OF_BOTH.items()}


def config(tmp_path: Path, text: str = BASE) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def asked(tmp_path: Path, *overrides: str) -> experiment.Experiment:
    return experiment.load(config(tmp_path), overrides)


def test_words_hosts_and_numbers_make_the_command(tmp_path):
    plan = make_plan(asked(tmp_path))
    web, get = plan.programs
    assert web.argv == ("python3", "-m", "http.server", "80")
    assert web.is_server
    assert web.peers == ()
    assert get.argv == ("curl", "-s", "http://10.0.0.1/")
    assert not get.is_server
    assert get.peers == ("h1",)
    assert (get.start_ns, get.repeat, get.every_ns) == (100_000_000, 20, None)
    assert plan.pairs == {("h4", "h1")}
    assert {(packet.src, packet.dst) for packet in plan.path_probes()} == {
        ("10.0.0.1", "10.0.0.4"),
        ("10.0.0.4", "10.0.0.1"),
    }


def test_both_directions_are_captured_and_what_comes_to_the_client_is_first(tmp_path):
    plan = make_plan(asked(tmp_path))
    assert plan.bottleneck.destinations == ("10.0.0.4",)
    assert [port.destinations for port in plan.others] == [("10.0.0.1",)]
    both = {plan.bottleneck.egress, plan.others[0].egress}
    assert {port for port, way in plan.capture_ports if way == "out"} == both


def test_planned_flows_decide_the_bottleneck(tmp_path):
    flows = "flows=[{from: [h3], to: h2}, {from: [h5], to: h2}]"
    plan = make_plan(asked(tmp_path, flows))
    alone = make_plan(asked(tmp_path, flows, "programs=[]"))
    assert plan.bottleneck.egress == alone.bottleneck.egress
    assert {*alone.capture_ports} < {*plan.capture_ports}


def starts_ns(tmp_path: Path, *starts: str, seed: int = 1, duration: str = "1s") -> list[int]:
    """When programs begin that ask for these starts."""
    command = "command: [ping, '{h1}']"
    programs = [
        f"{{name: p{n}, host: h4, {command}, start: {start}}}" for n, start in enumerate(starts)
    ]
    overrides = (f"programs=[{', '.join(programs)}]", f"seed={seed}", f"duration={duration}")
    return [program.start_ns for program in make_plan(asked(tmp_path, *overrides)).programs]


def test_clients_with_one_start_begin_within_10_ms_of_it(tmp_path):
    ms = 10**6
    drawn = [starts_ns(tmp_path, "100ms", "100ms", "100ms", seed=seed) for seed in range(1, 9)]
    assert all(100 * ms <= each < 110 * ms for one in drawn for each in one)
    assert len({each for one in drawn for each in one}) == 24
    assert drawn[0] == starts_ns(tmp_path, "100ms", "100ms", "100ms")
    # One that is added changes no other's.
    assert starts_ns(tmp_path, "100ms", "100ms", "100ms", "7ms", "100ms")[:4] == [*drawn[0], 7 * ms]


def test_a_client_alone_at_its_start_and_one_without_a_spread_begin_on_time(tmp_path):
    ms = 10**6
    assert starts_ns(tmp_path, "100ms", "200ms") == [100 * ms, 200 * ms]
    in_step = "{at: 100ms, spread: 0ms}"
    assert starts_ns(tmp_path, in_step, in_step, "100ms")[:2] == [100 * ms, 100 * ms]
    (alone,) = starts_ns(tmp_path, "{at: 100ms, spread: 500ms}")
    assert 100 * ms < alone < 600 * ms
    assert all(each < 4 * ms for each in starts_ns(tmp_path, *["3ms"] * 9, duration="4ms"))
    # A server begins before the traffic, and shares no start.
    assert make_plan(asked(tmp_path, "programs.1.start=0s")).programs[1].start_ns == 0


def test_the_start_is_resolved_and_recorded(tmp_path):
    planned = asked(tmp_path, "programs.1.start={at: 5ms, spread: 3ms}")
    (tmp_path / "again.yaml").write_text(experiment.dump(planned), encoding="utf-8")
    assert experiment.load(tmp_path / "again.yaml") == planned
    plan = make_plan(planned)
    assert (
        launch.record(plan, plan.programs[1], []).start_ns == plan.programs[1].start_ns > 5 * 10**6
    )


def test_an_address_that_is_written_out_names_its_host():
    assert fill("http://10.0.0.2:80/", HOSTS, "x") == ("http://10.0.0.2:80/", ["h2"])
    assert fill("{h1}:{h2}", HOSTS, "x") == ("10.0.0.1:10.0.0.2", ["h1", "h2", "h1", "h2"])
    assert fill("110.0.0.2 10.0.0.21", HOSTS, "x")[1] == []
    assert fill("{{x}}", HOSTS, "x") == ("{x}", [])
    assert fill("http://h2:80/", HOSTS, "x") == ("http://h2:80/", ["h2"])
    assert fill("h21 h2.txt x-h2", HOSTS, "x")[1] == []


def test_a_host_has_the_form_of_its_address_that_is_asked_for():
    for word, of_both, of_ipv6 in (
        ("{h2}", "10.0.0.2", "fd00::a00:2"),
        ("http://{h2.url}:80/", "http://10.0.0.2:80/", "http://[fd00::a00:2]:80/"),
        ("[{h2.ipv6}]:9", "[fd00::a00:2]:9", "[fd00::a00:2]:9"),
    ):
        assert fill(word, OF_BOTH, "x") == (of_both, ["h2", "h2"])
        assert fill(word, OF_IPV6, "x") == (of_ipv6, ["h2", "h2"])
    assert fill("{h2.ipv4}", OF_BOTH, "x")[0] == "10.0.0.2"
    assert fill("http://[fd00::a00:16]/", OF_IPV6, "x")[1] == ["h16"]
    for word, hosts in (("{h2.ipv4}", OF_IPV6), ("{h2.ipv6}", HOSTS)):
        with pytest.raises(ConfigError, match="allowed is addressing: both"):
            fill(word, hosts, "x")
    with pytest.raises(ConfigError, match="no host"):
        fill("{h2.port}", HOSTS, "x")


@given(st.text())
def test_doubled_braces_give_any_text_back(text):
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert fill(doubled, {"h1": ("none",)}, "x")[0] == text


# --- before the run


def test_a_missing_program_is_refused(tmp_path):
    for command, named in (
        ("no-such-program", "no such program in /usr/local/sbin"),
        ("/usr/bin/no-such-program", "no such program"),
        ("/etc/passwd", r"cannot be executed; .*chmod \+x"),
        ("/etc", "cannot be executed$"),
    ):
        with pytest.raises(FeatureMissingError, match=named) as caught:
            program_files.require(asked(tmp_path, f"programs.1.command.0={command}"), None)
        assert str(caught.value).startswith("programs.1.command: ")
    with pytest.raises(ConfigError, match="is in none of its `files`"):
        program_files.require(asked(tmp_path, "programs.1.command.0=./mine"), None)


def test_a_program_that_the_guest_does_not_see_is_refused(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("#!/bin/sh\n", encoding="ascii")
    mine.chmod(0o755)
    wanted = asked(tmp_path, f"programs.1.command.0={mine}")
    program_files.require(wanted, None)
    if str(tmp_path.resolve()).startswith("/tmp/"):
        with pytest.raises(FeatureMissingError, match="the guest does not see the host's /tmp"):
            program_files.require(wanted, world.of_host())
        link = tmp_path / "link"
        link.symlink_to("/bin/true")
        with pytest.raises(FeatureMissingError, match="the guest does not see the host's /tmp"):
            program_files.require(asked(tmp_path, f"programs.1.command.0={link}"), world.of_host())
    given_to_it = asked(tmp_path, "programs.1.command.0=./mine", "programs.1.files=[mine]")
    program_files.require(given_to_it, world.of_host())


def test_a_program_that_the_guests_root_lacks_is_refused_with_the_remedy(tmp_path):
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    for name in ("curl", "python3.11"):
        (root / "usr/bin" / name).write_text("")
        (root / "usr/bin" / name).chmod(0o755)
    # On the host the first link leads to a program, and in the root to nothing.
    (root / "usr/bin/sh").symlink_to("/bin/sh.of-the-host")
    (root / "usr/bin/python3").symlink_to("/usr/bin/python3.11")
    (root / "usr/bin/out").symlink_to("../../../../../../bin/sh")
    sees = World(root)
    for command in ("curl", "/bin/curl", "/usr/bin/python3"):
        program_files.require(asked(tmp_path, f"programs.1.command.0={command}"), sees)
    for command in ("nginx", "/usr/sbin/nginx", "/bin/sh", "/bin/out"):
        with pytest.raises(
            FeatureMissingError, match=r"guest's own root.*guest\.root=host"
        ) as caught:
            program_files.require(asked(tmp_path, f"programs.1.command.0={command}"), sees)
        assert str(caught.value).startswith(f"programs.1.command: {command}: ")
    mine = tmp_path / "mine"
    mine.write_text("#!/bin/sh\n", encoding="ascii")
    mine.chmod(0o755)
    with pytest.raises(FeatureMissingError, match=r"a program of yours is given by `files`; "):
        program_files.require(asked(tmp_path, f"programs.1.command.0={mine}"), sees)
    for word in ("mine", str(mine), "/bin/mine"):
        command = Command("h1", (word,), str(tmp_path), 1)
        with pytest.raises(FeatureMissingError, match=r"^COMMAND: .*guest\.root=host"):
            program_files.require_command(command, sees)
    # The guest sees the folder in which the command is called.
    program_files.require_command(Command("h1", ("./mine",), str(tmp_path), 1), sees)
    program_files.require_command(Command("h1", ("curl",), str(tmp_path), 1), sees)


def test_files_are_taken_into_the_run_directory(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/page").write_text("hello", encoding="ascii")
    (tmp_path / "run").mkdir()
    directory = RunDirectory(tmp_path / "run")
    wanted = asked(tmp_path, "programs.0.files=[site]")
    taken = program_files.take_files(wanted, directory)
    assert with_files(make_plan(wanted).programs, taken) == make_plan(taken).programs
    directory.config.write_text(experiment.dump(taken), encoding="utf-8")
    assert "programs/web/files/site" in directory.config.read_text(encoding="utf-8")
    assert str(tmp_path) not in directory.config.read_text(encoding="utf-8")
    again = experiment.load_resolved(directory.config)
    assert again.programs[0].files == (directory.path / "programs/web/files/site",)
    folder = tmp_path / "folder"
    assert folders.copy_files(folders.program_files(directory, "web"), folder) == {"site/page"}
    assert (folder / "site/page").stat().st_mtime == folders.FILES_TIME_S
    assert folders.copy_files(folders.program_files(directory, "get"), tmp_path / "other") == set()


# --- the runner


def task(tmp_path: Path, script: str, **changes: Any) -> dict[str, Any]:
    outputs = tmp_path / "outputs"
    outputs.mkdir(exist_ok=True)
    return {
        "confined": None,
        "own": {},
        "argv": ["/bin/sh", "-c", script],
        "folder": str(tmp_path),
        "environment": {"PATH": "/usr/bin:/bin"},
        "outputs": str(outputs),
        "most_output_bytes": 1000,
        "line": None,
        "server": False,
        "start_ns": 0,
        "every_ns": None,
        "repeat": 1,
        "allow_failure": False,
        "duration_ns": 10**10,
        "end_ns": 2 * 10**10,
        "limits": {},
        "time_ns": None,
        **changes,
    }


def run_runner(tmp_path: Path, asked_for: dict[str, Any]) -> subprocess.Popen[bytes]:
    (tmp_path / "task.json").write_text(json.dumps(asked_for), encoding="utf-8")
    (tmp_path / "start").write_text(str(time.time_ns()), encoding="ascii")
    return subprocess.Popen(
        standalone.command(
            supervisor.__name__, *(tmp_path / name for name in ("task.json", "start", "result"))
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def results(tmp_path: Path) -> list[ExecutionRecord]:
    lines = (tmp_path / "result").read_text(encoding="utf-8").splitlines()
    return [ExecutionRecord.model_validate_json(line) for line in lines]


def ran(tmp_path: Path, script: str, status: int = 0, **changes: Any) -> list[ExecutionRecord]:
    """The executions of a task whose runner ends with this status."""
    (tmp_path / "result").unlink(missing_ok=True)
    assert run_runner(tmp_path, task(tmp_path, script, **changes)).wait(60) == status
    return results(tmp_path)


def kept(tmp_path: Path, name: str) -> str:
    return (tmp_path / "outputs" / name).read_text(encoding="ascii")


def test_a_client_runs_as_often_as_asked_and_its_output_is_kept(tmp_path):
    records = ran(tmp_path, "echo $OUTCAST_EXECUTION; echo no >&2", repeat=3)
    assert [record.number for record in records] == [0, 1, 2]
    assert all(one.t_end_ns <= other.t_start_ns for one, other in pairwise(records))
    assert (kept(tmp_path, "2.out"), kept(tmp_path, "2.err")) == ("2\n", "no\n")


def test_a_failure_ends_a_client_unless_it_is_allowed(tmp_path):
    assert [record.status for record in ran(tmp_path, "exit 7", 1, repeat=3)] == [7]
    allowed = ran(tmp_path, "exit 7", repeat=3, allow_failure=True)
    assert [record.status for record in allowed] == [7, 7, 7]


def test_output_beyond_the_bound_is_counted_and_not_kept(tmp_path):
    first, second = ran(tmp_path, "head -c 5000 /dev/zero", repeat=2)
    assert (first.output_bytes, first.kept_bytes) == (5000, 1000)
    assert (second.output_bytes, second.kept_bytes) == (5000, 0)
    assert len(kept(tmp_path, "0.out")) == 1000
    ran(tmp_path, "head -c 5000 /dev/zero; echo why >&2")
    assert kept(tmp_path, "0.err") == "why\n"


def test_a_client_that_does_not_end_is_ended_with_its_children(tmp_path):
    late = "trap '' TERM; sleep 61 & wait; sleep 62"
    (record,) = ran(tmp_path, late, 1, end_ns=300_000_000)
    assert (record.ended_by, record.status) == ("run", -signal.SIGKILL)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"#!/bin/sh\r\necho\r\n", "its first line asks for '/bin/sh\\r', which is not there"),
        (None, "mine: there is no such file"),
    ],
)
def test_a_program_without_an_interpreter_is_told(tmp_path, content, said):
    if content is not None:
        (tmp_path / "mine").write_bytes(content)
        (tmp_path / "mine").chmod(0o755)
    process = run_runner(tmp_path, task(tmp_path, "", argv=[str(tmp_path / "mine")]))
    assert process.communicate(timeout=60)[1].decode().rstrip().endswith(said)
    assert process.returncode == 1


def test_each_execution_has_its_own_limits(tmp_path):
    slow = ran(tmp_path, "exec sleep 61", time_ns=300_000_000, allow_failure=True, repeat=2)
    assert [(each.ended_by, each.status) for each in slow] == [("limit", -15)] * 2
    ran(tmp_path, "ulimit -n", limits={"RLIMIT_NOFILE": 20, "RLIMIT_DATA": None})
    assert kept(tmp_path, "0.out") == "20\n"


def test_a_server_says_its_line_and_ends_when_told(tmp_path):
    server = task(tmp_path, "echo now listening; sleep 60", server=True, line="listening")
    process = run_runner(tmp_path, server)
    assert process.stdout.readline() == b"line\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    (record,) = results(tmp_path)
    assert (record.ended_by, record.status) == ("run", -signal.SIGTERM)


def test_a_server_that_ends_by_itself_has_failed(tmp_path):
    ran(tmp_path, "exit 0", 1, server=True)


# --- one command


def test_the_plan_of_a_command_has_servers_and_reaches_every_host(tmp_path):
    plan = make_plan(asked(tmp_path, "flows=[{from: [h3], to: h2}]"))
    planned = plan_of_command(plan, "h4", ["curl", "{h1}"], "/work", 10**9)
    assert planned.command.argv == ("curl", "10.0.0.1")
    assert [program.name for program in planned.programs] == ["web"]
    assert planned.flows == ()
    assert planned.pairs == {("h4", other) for other in ("h1", "h2", "h3", "h5")}
    assert planned.bottleneck == plan.bottleneck
    first = plan_of_command(plan, None, ["true"], "/work", 10**9)
    assert first.command.host == "h1"
    (tmp_path / "plan.json").write_text(stored.dumps(planned), encoding="utf-8")
    assert stored.read_plan(tmp_path / "plan.json").command == planned.command
    with pytest.raises(ConfigError, match="--host: no host 'h9'; allowed are h1"):
        plan_of_command(plan, "h9", ["true"], "/work", 10**9)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--deadline", "1", "--", "true"], "outcast: --deadline: "),
        (["--deadline", "0s", "--", "true"], "outcast: --deadline: 0s: allowed is a time above 0"),
        ([], "outcast: COMMAND: is missing"),
        (["ping", "-c", "1"], "outcast: No such option '-c'. Before a command with options of"),
        (["--hots", "--", "ls"], "outcast: No such option '--hots'. Did you mean '--host'?\n"),
    ],
)
def test_what_exec_refuses(tmp_path, arguments, line, capsys, monkeypatch):
    monkeypatch.setattr(guest, "provide", lambda experiment, progress: None)
    monkeypatch.setattr("outcast.engines.choose", lambda experiment, tell: VirtualEngine())
    program = tmp_path / "linux"
    program.write_bytes(b"a kernel")
    kernel = Kernel("s", "v", "r", "7.3", 1.0, files.sha256(program), program)
    monkeypatch.setattr(virtual, "kernel_of", lambda experiment: kernel)
    host = ["--set", "guest.root=host"]
    status = cli.invoke(["exec", str(config(tmp_path)), *host, *arguments])
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert said.count("\n") == 1
    assert status in (2, 3)
