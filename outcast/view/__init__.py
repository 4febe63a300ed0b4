"""What people see of a run: figures, the report, and tables in a terminal."""
