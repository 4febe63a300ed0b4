"""What a transfer does on a slow link with a short queue. `pytest` runs it, without root."""

import pytest

NETWORK = {
    "topology": {"kind": "linear", "rivals": 2},
    "links": {"rate": "50mbit", "delay": "3ms"},
    "queue": {"kind": "pfifo", "limit": "40 packets"},
    "duration": "20s",
    "programs": [
        {
            "name": "serve",
            "host": "h2",
            "command": ["python3", "transfer.py", "serve"],
            "files": ["transfer.py"],
            "ready": {"port": 7777},
        },
        {
            "name": "get",
            "host": "h1",
            "command": ["python3", "transfer.py", "get", "h2"],
            "files": ["transfer.py"],
        },
    ],
}


@pytest.mark.outcast_seeds(3)
def test_a_transfer_survives_loss(outcast):
    run = outcast.run(**NETWORK)
    get = run.program("get")
    assert get.status == 0
    assert get.output == "1000000\n"
    assert get.duration_s < 3
    assert run.table("packets").filter(verdict="dropped").height < 100
