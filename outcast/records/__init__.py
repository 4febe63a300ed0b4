"""A run's directory: the files' names, their typed contents, their readers."""
