"""A run's directory: the files' names, their typed contents, their readers."""

from outcast import members

TYPE_CHECKING = False  # See outcast/__init__.py.
if TYPE_CHECKING:
    from outcast.records.counters import Counters, LinkRecord
    from outcast.records.flows import FlowRecord
    from outcast.records.interventions import (
        MOST_FATES,
        Fate,
        Interventions,
        NoiseFrom,
        PacketFate,
    )
    from outcast.records.kept_captures import digests
    from outcast.records.replay import Explanation, causes, explain, require_equal, require_prefix
    from outcast.records.run import IN_INTERVAL, Run
    from outcast.records.run_directory import (
        GuestRecord,
        Manifest,
        RunDirectory,
        read_record,
        write_record,
    )
    from outcast.records.tables import (
        PartsWriter,
        csv_text,
        read_table,
        scan_table,
        write_table,
    )
    from outcast.records.trace import FOLDER, Formats, Traced, table_name
else:
    __getattr__ = members(
        __name__,
        {
            "outcast.records.counters": "Counters LinkRecord",
            "outcast.records.flows": "FlowRecord",
            "outcast.records.interventions": ("Fate Interventions MOST_FATES NoiseFrom PacketFate"),
            "outcast.records.kept_captures": "digests",
            "outcast.records.replay": "Explanation causes explain require_equal require_prefix",
            "outcast.records.run": "IN_INTERVAL Run",
            "outcast.records.run_directory": (
                "GuestRecord Manifest RunDirectory read_record write_record"
            ),
            "outcast.records.tables": "PartsWriter csv_text read_table scan_table write_table",
            "outcast.records.trace": "FOLDER Formats Traced table_name",
        },
    )
