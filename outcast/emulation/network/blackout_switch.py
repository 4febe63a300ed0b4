"""The synthetic blackout's switch: runs blackout_switch.c, and reads its result.

It stands between a switch port's link and the switch. The port keeps its name, its queue and its
captures. The switch itself has the inner end of a veth pair in the port's place.
"""

from __future__ import annotations

import json
import random
import signal

from outcast.emulation import c_programs
from outcast.emulation.part import Context, Part, Record
from outcast.errors import RunError
from outcast.experiment import Experiment
from outcast.files import write_text
from outcast.plan.model import BLACKOUT_ENDS, Plan
from outcast.records.run_directory import BlackoutRecord

START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 10.0


class BlackoutSwitch(Part):
    def __init__(self, run: Context) -> None:
        super().__init__()
        self._run = run
        self._result = run.scratch / "blackout.json"
        self.record: BlackoutRecord | None = None

    def prepare(self) -> None:
        run, blackout = self._run, self._run.experiment.blackout
        if blackout is None:
            return
        program = c_programs.provide(c_programs.BLACKOUT, run.scratch, run.commands)
        seed = random.Random(f"{run.experiment.seed} blackout").getrandbits(64)
        process = run.commands.spawn(
            "the blackout's switch",
            [
                *(str(program), blackout.at, BLACKOUT_ENDS[0], str(blackout.drops)),
                *(str(on_ns(run.experiment, run.plan)), str(blackout.off_mean_ns), str(seed)),
                str(self._result),
            ],
            stdout=run.scratch / "blackout.out",
            stderr=run.scratch / "blackout.err",
        )
        self.lasting.append(process)
        process.await_word("ready", f"{process.name} to start", START_DEADLINE_S)

    def finish(self) -> Record:
        """Makes it drop no more packets from now on."""
        self.require_alive()
        for process in self.lasting:
            process.popen.send_signal(signal.SIGUSR1)
        return Record()

    def end(self) -> None:
        """Writes every ON period into blackout.json. Raises RunError where it lost frames."""
        blackout = self._run.experiment.blackout
        if blackout is None:
            return
        (process,) = self.lasting
        if process.end(signal.SIGTERM, STOP_DEADLINE_S):
            raise process.failure()
        text = self._result.read_text(encoding="ascii")
        result = json.loads(text)
        if result["lost"]:
            raise RunError(f"{process.name}: lost {result['lost']} frames on the way")
        write_text(self._run.directory.blackout, text)
        self.record = BlackoutRecord(
            port=blackout.at,
            packets=result["packets"],
            dropped=result["dropped"],
            periods=len(result["periods"]),
        )


def on_ns(experiment: Experiment, plan: Plan) -> int:
    """The length of an ON period: the time of `drops` full frames on the link to the port.

    It is 0 where the period counts packets instead.
    """
    blackout = experiment.blackout
    if blackout is None or blackout.by == "packets":
        return 0
    port, before = plan.ends[blackout.at]
    link = plan.links[before, port]
    wire_bytes = link.framing.wire_bytes(link.frame_bytes)
    return blackout.drops * wire_bytes * 8 * 10**9 // link.rate_bps
