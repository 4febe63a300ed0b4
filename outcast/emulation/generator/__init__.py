"""Generated traffic: the program at each host, and how it is started and awaited."""
