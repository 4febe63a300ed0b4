"""Starts the inner program: `python -m outcast.emulation RUN_DIR ENGINE`; see inside.py.

It takes little of large packages, and ends without undoing its imports. Both would cost a
tenth of a run's set-up in the guest.
"""

from __future__ import annotations

import gc
import os
import sys

from controllers import slim

# All that is imported stays. A tenth of the time would go to looking for garbage in it.
gc.disable()
slim.slim(*slim.GRAPHS)
slim.later("pyroute2")

from outcast.emulation import inside  # noqa: E402

if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    os.umask(0o022)
    status = inside.main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
