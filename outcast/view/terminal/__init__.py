"""Tables, lists and progress in a terminal."""
