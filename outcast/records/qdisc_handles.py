"""The handles of a port's qdiscs. They are the same at every port.

```
8:  cable, only at hosts: the shaper is its class 1, and what follows the card its class 2
1:  netem, only where a link has a delay
9:  netem with slots, only at hosts whose sender takes its time (`noise.sender`)
2:  the shaper: tbf or htb; its drop counter counts all drops below it
3:  the queue
4:  a qdisc below the queue, if its kind needs one: it holds the packets of a marking queue
11: and so on: the queue of class 3:1 and so on, in a queue with classes (hexadecimal)
```
"""

CABLE_HANDLE = 8
DELAY_HANDLE = 1
SENDER_HANDLE = 9
SHAPER_HANDLE = 2
QUEUE_HANDLE = 3
CLASS_HANDLE = 16
