"""Offers what `import outcast` has, and what the verbs of the command line call."""
