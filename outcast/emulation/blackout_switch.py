"""The synthetic blackout's switch: builds, starts and ends blackout_switch.c, and reads its result.

It stands between a switch port's link and the switch. The port keeps its name, its queue and its
captures. The switch itself has the inner end of a veth pair in the port's place.
"""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

from outcast.emulation import in_c
from outcast.emulation.commands import Commands, Process
from outcast.emulation.part import Part, Record
from outcast.errors import RunError
from outcast.experiment import Experiment
from outcast.files import write_text
from outcast.plan.model import BLACKOUT_ENDS, Plan
from outcast.records.run_directory import BlackoutRecord, RunDirectory

START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 10.0


class BlackoutSwitch(Part):
    """Runs while the block lasts; without a blackout in the experiment there is none."""

    def __init__(
        self,
        experiment: Experiment,
        plan: Plan,
        directory: RunDirectory,
        scratch: Path,
        commands: Commands,
    ) -> None:
        self._experiment, self._plan, self._directory = experiment, plan, directory
        self._scratch, self._commands = scratch, commands
        self._process: Process | None = None
        self.record: BlackoutRecord | None = None

    def __enter__(self) -> BlackoutSwitch:
        self._start()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_error: object) -> None:
        if failed is None:
            self.record = self._stop()

    def _start(self) -> None:
        """Builds and starts it, and waits until it forwards.

        Raises:
            CommandError: it could not be built, or it has ended.
            DeadlineError: it did not start in time.
        """
        blackout = self._experiment.blackout
        if blackout is None:
            return
        program = in_c.provide(in_c.BLACKOUT, self._scratch, self._commands)
        seed = random.Random(f"{self._experiment.seed} blackout").getrandbits(64)
        process = self._commands.spawn(
            "the blackout's switch",
            [
                *(str(program), blackout.at, BLACKOUT_ENDS[0], str(blackout.drops)),
                *(str(on_ns(self._experiment, self._plan)), str(blackout.off_mean_ns), str(seed)),
                str(self._result),
            ],
            stdout=self._scratch / "blackout.out",
            stderr=self._scratch / "blackout.err",
        )
        self._process = process
        process.await_word("ready", f"{process.name} to start", START_DEADLINE_S)

    @property
    def _result(self) -> Path:
        return self._scratch / "blackout.json"

    def require_alive(self) -> None:
        """Raises CommandError where it has ended by itself."""
        if self._process is not None:
            self._process.require_alive()

    def finish(self) -> Record:
        """Makes it drop no more packets from now on."""
        if self._process is not None:
            self._process.require_alive()
            self._process.popen.send_signal(signal.SIGUSR1)
        return Record()

    def _stop(self) -> BlackoutRecord | None:
        """Ends it, and writes every ON period into blackout.json.

        Raises RunError: it ended badly, or frames were lost in it.
        """
        blackout = self._experiment.blackout
        if self._process is None or blackout is None:
            return None
        status = self._process.end(signal.SIGTERM, STOP_DEADLINE_S)
        if status:
            raise self._process.failure()
        text = self._result.read_text(encoding="ascii")
        result = json.loads(text)
        if result["lost"]:
            raise RunError(f"{self._process.name}: lost {result['lost']} frames on the way")
        write_text(self._directory.blackout, text)
        return BlackoutRecord(
            port=blackout.at,
            packets=result["packets"],
            dropped=result["dropped"],
            periods=len(result["periods"]),
        )


def on_ns(experiment: Experiment, plan: Plan) -> int:
    """How long an ON period lasts in nanoseconds; 0 where it counts packets instead.

    It is the time that `drops` full frames take on the link by which they come to the port.
    """
    blackout = experiment.blackout
    if blackout is None or blackout.by == "packets":
        return 0
    port, before = plan.ends[blackout.at]
    link = plan.links[before, port]
    wire_bytes = link.framing.wire_bytes(link.frame_bytes)
    return blackout.drops * wire_bytes * 8 * 10**9 // link.rate_bps
