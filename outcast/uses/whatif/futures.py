"""Futures of a run: from an instant on its noise is another one, and all before is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from outcast.analysis import probability
from outcast.api import derived_seed
from outcast.errors import ConfigError, InputError
from outcast.experiment import Experiment, Throttled
from outcast.records import Interventions, NoiseFrom, Run
from outcast.units import format_time, parse_time_ns
from outcast.uses.whatif.compared import Instant

SURE = 0.95
"""Above this probability an outcome is decided, and below one minus it its opposite is."""
MOST_INSTANTS = 10_000
MOST_FUTURES = 10_000
_MOST_DIGITS = len(str(1 << 63))


@dataclass(frozen=True, slots=True)
class Future:
    """A future of a run, by the name of its folder, and its noise."""

    name: str
    noise: NoiseFrom

    @property
    def words(self) -> str:
        """The future as `outcast whatif --noise` takes it."""
        return f"{format_time(self.noise.t_ns)}:{self.noise.seed}"


def instants(text: str) -> range:
    """Reads `FROM:TO:STEP` in nanoseconds; TO itself is left out. Raises ConfigError."""
    where = f"--at {text}: allowed is FROM:TO:STEP, as 0:500ms:25ms"
    parts = text.split(":")
    try:
        from_ns, to_ns, step_ns = (0 if part.strip() == "0" else parse_time_ns(part)
                                   for part in parts)  # fmt: skip
    except ValueError as error:
        raise ConfigError(where if len(parts) != 3 else f"{where}: {error}") from None
    if step_ns <= 0 or to_ns <= from_ns:
        raise ConfigError(f"{where}, with TO after FROM and a STEP above 0")
    # A range's own length is refused beyond 64 bits.
    count = -(-(to_ns - from_ns) // step_ns)
    if count > MOST_INSTANTS:
        raise ConfigError(f"{where}: {count} instants; allowed are {MOST_INSTANTS}")
    return range(from_ns, to_ns, step_ns)


def noise(text: str, boot_ns: int, end_ns: int) -> NoiseFrom:
    """Reads a future as `25ms:12345`. Raises ConfigError.

    `boot_ns` is the traffic's start by the guest's clock, `end_ns` the run's duration.
    """
    at, _, seed = text.partition(":")
    try:
        t_ns = 0 if at.strip() == "0" else parse_time_ns(at)
    except ValueError as error:
        raise ConfigError(f"--noise {text}: {error}") from None
    if (
        not (seed.isascii() and seed.isdecimal())
        or len(seed) > _MOST_DIGITS
        or not 0 < int(seed) < 1 << 63
    ):
        raise ConfigError(f"--noise {text}: allowed is TIME:SEED, as 25ms:12345")
    require_within([t_ns], end_ns, f"--noise {text}")
    return NoiseFrom(t_ns=t_ns, boot_ns=boot_ns + t_ns, seed=int(seed))


def require_within(at_ns: Sequence[int], end_ns: int, option: str) -> None:
    """Raises ConfigError unless all instants lie before the end of the run's duration."""
    if not at_ns or not 0 <= min(at_ns) <= max(at_ns) < end_ns:
        raise ConfigError(
            f"{option}: allowed is from 0 until the run's duration is over, {end_ns / 1e6:g}ms"
        )


def plan(at_ns: Sequence[int], count: int, seed: int, boot_ns: int) -> Iterator[Future]:
    """The futures from every instant on, each with a seed that nothing else decides."""
    for t_ns in at_ns:
        for number in range(count):
            own = derived_seed(seed, {"noise from": t_ns}, number) or 1
            digest = hashlib.sha256(f"{t_ns} {own}".encode()).hexdigest()[:12]
            name = f"from={format_time(t_ns)},f{number}-{digest}"
            yield Future(name, NoiseFrom(t_ns=t_ns, boot_ns=boot_ns + t_ns, seed=own))


def interventions(earlier: Interventions | None, named: str, noise: NoiseFrom) -> Interventions:
    """The changes of a future: what was changed in the run stays. Raises InputError."""
    if earlier is not None and earlier.noise is not None:
        raise InputError(
            f"{named}: its noise is another one from {format_time(earlier.noise.t_ns)} on already; "
            "allowed is the run that it was made from"
        )
    before = earlier or Interventions(of=named)
    last_ns = max((fate.t_in_ns for fate in before.fates), default=noise.t_ns)
    if noise.t_ns < last_ns:
        # With other noise before it, the packet need not come.
        raise InputError(
            f"{named}: has a packet with another fate at {format_time(last_ns)}; "
            "allowed are futures from then on"
        )
    return Interventions(of=named, fates=before.fates, noise=noise)


def single(
    run: Run, named: str, wanted: Sequence[object], words: str, boot_ns: int
) -> Interventions:
    """A single future of a run. Raises ConfigError or InputError."""
    if wanted:
        raise ConfigError("--noise: not together with fates of packets; allowed is one of the two")
    manifest = run.directory.read_manifest()
    require_random(run.experiment, named)
    own = noise(words, boot_ns, manifest.traffic.duration_ns)
    return interventions(manifest.interventions, named, own)


_DRAWN_ON_LINKS = ("jitter_ns", "loss", "burst_loss", "late", "duplicate", "random_delay")
_DRAWING_QUEUES = frozenset({"red", "pie", "dualpi2", "cake", "custom"})


def require_random(experiment: Experiment, named: str) -> None:
    """Raises InputError if nothing in a run is drawn at random once it has begun."""
    if not any(_drawn(experiment)):
        raise InputError(
            f"{named}: its noise draws nothing at random while it runs (profile "
            f"{experiment.noise.profile or 'of its own'}), so it has one future alone; allowed "
            "are runs with jitter, random interrupts, losses or delays, or queues that drop at "
            "random"
        )


def _drawn(experiment: Experiment) -> Iterator[object]:
    """Whether each source of chance draws during the run."""
    links, noise = experiment.links, experiment.noise
    every = (links, *links.overrides, *(own for _, own in links.layers.given()))
    for link in (*every, *experiment.events):
        yield from (getattr(link, key, None) not in (None, 0, "none") for key in _DRAWN_ON_LINKS)
    own = [override.queue for override in links.overrides if override.queue is not None]
    for queue in (experiment.queue, *(other.queue for other in experiment.queues), *own):
        yield queue.kind in _DRAWING_QUEUES or getattr(queue, "perturb_ns", 0)
    held = noise.interrupts if not isinstance(noise.interrupts, Throttled) else None
    yield noise.switch_latency_ns
    for span in (held, noise.sender):
        yield span is not None and span.most_ns > span.least_ns


def instant(t_ns: int, outcomes: Mapping[int, bool], same: int = 0) -> Instant:
    """The outcomes of the futures from one instant on, by their seeds; `same` are the run again."""
    low, high = probability(sum(outcomes.values()), len(outcomes))
    happened = [*outcomes.values()]
    return Instant(t_ns=t_ns, seeds=[*outcomes], happened=happened, low=low, high=high, same=same)


def decided_ns(found: Sequence[Instant]) -> int | None:
    """The first instant from which on the outcome or its opposite is sure; None without one.

    The interval of its probability says so, which lies beyond SURE from 72 equal futures on.
    """
    if not found:
        return None
    happens = found[-1].low > SURE
    decided = None
    for instant in reversed(found):
        if (instant.low if happens else 1 - instant.high) <= SURE:
            break
        decided = instant.t_ns
    return decided
