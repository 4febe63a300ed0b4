"""The inner program, which does the run: `python -m outcast.emulation RUN_DIR ENGINE`.

Both engines start it: the realtime one in fresh network, mount and process namespaces, the virtual
one as the payload of its guest.

It reports on standard output, with a JSON object on each line:

```
{"event": "phase", "phase": "setup"}                  a phase begins
{"event": "note", "text": "flow 0: ..."}              what to know before the traffic
{"event": "goodput", "t_s": 1.5, "classes": {"2": 4.1e6}}   mean of the class since the last event;
    with `groups` by label too where flows are not shown by hop count
{"event": "programs", "running": ["program get at h4 (curl)"]}   when one starts or ends
{"event": "output", "stream": "out", "data": "aGkK"}        of a single command, in base64
{"event": "ended", "status": 0, "fault": null}              of a single command
{"event": "done"}
{"event": "error", "kind": "ReadBackError", "message": "..."}   and exit status 1
```

It takes little of large packages, and ends without undoing its imports. Both would cost a tenth of
a run's set-up in the guest.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from controllers import slim

if TYPE_CHECKING:
    from outcast.experiment.engine import EngineName

# All that is imported stays. A tenth of the time would go to looking for garbage in it.
gc.disable()
slim.slim(*slim.GRAPHS)
slim.later("pyroute2")

from outcast import files  # noqa: E402
from outcast.emulation import inner_run  # noqa: E402
from outcast.errors import OutcastError, RunError  # noqa: E402
from outcast.records.run_directory import RunDirectory  # noqa: E402

_LONGEST_MESSAGE = 300


def main(argv: Sequence[str]) -> int:
    def emit(event: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    kind = RunError.__name__
    try:
        inner_run.run(RunDirectory(Path(argv[0])), cast("EngineName", argv[1]), emit)
    except OutcastError as error:
        kind, message = type(error).__name__, str(error)
    except OSError as error:
        # The run directory's disk is full, say; the cause is to come before the traceback.
        traceback.print_exc()
        message = files.describe(error)
    except Exception as error:
        # A bug of outcast. Without its name the log's last lines would look like the cause.
        traceback.print_exc()
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_MESSAGE]}"
    else:
        return 0
    emit({"event": "error", "kind": kind, "message": message})
    return 1


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    os.umask(0o022)
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
