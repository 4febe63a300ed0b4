"""What `import outcast` offers, and what the verbs of the command line call."""
