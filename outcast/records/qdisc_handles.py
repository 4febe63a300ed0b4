"""The handles of a port's qdiscs, the same everywhere.

```
1:  netem, only where a link has a delay
2:  the shaper: tbf or htb; its drop counter counts all drops below it
3:  the queue
4:  what the queue's kind has below that: what holds the packets of a marking queue
```
"""

DELAY_HANDLE = 1
SHAPER_HANDLE = 2
QUEUE_HANDLE = 3
