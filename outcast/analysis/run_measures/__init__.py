"""Numbers of a run, by name: recipes, exercises and programs refer to these names."""
