"""What a run leaves in its directory: the files' names, their typed contents, their readers."""
