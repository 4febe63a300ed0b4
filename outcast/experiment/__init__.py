"""An experiment as YAML describes it.

Each part of the schema has a file; `reader` reads and writes YAML. Keys are as people write them
(`rate: 1gbit`); attributes carry their unit (`rate_bps`).
"""

from outcast.experiment.engine import EngineName, Kernel, Module, properties
from outcast.experiment.events import Event
from outcast.experiment.limit import Limit
from outcast.experiment.links import Layers, Link, OwnKeys
from outcast.experiment.measure import GroupKind, Instant, Trace
from outcast.experiment.network import (
    Network,
    NetworkError,
    NetworkHost,
    NetworkLink,
    NetworkSwitch,
)
from outcast.experiment.noise import PROFILES, Noise, Throttled
from outcast.experiment.parts import MTU_FRAME_BYTES, UNIT_SCHEMA, files_of, key_of, leaves
from outcast.experiment.programs import Program
from outcast.experiment.queues import PacingFq, Pfifo, Queue
from outcast.experiment.queues.drop_tail import Custom
from outcast.experiment.reader import (
    Source,
    dump,
    json_schema,
    load,
    load_resolved,
    of_text,
    parse_with_lines,
    parse_yaml,
    read,
    validate,
)
from outcast.experiment.refusals import Location, first_wrong
from outcast.experiment.topology import FromFile, FromGraph, Origin, OwnTopology, Topology
from outcast.experiment.transport import TcpRand, Transport
from outcast.experiment.whole import Experiment, Sweep
from outcast.experiment.workloads import (
    Background,
    ConstantRate,
    FlowGroup,
    Incast,
    Poisson,
    Shuffle,
    Workload,
)
