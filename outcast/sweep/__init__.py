"""Many runs of one configuration: which runs, in what order, where they run, and their averages.

The way of the data: `points` (which runs) -> `plan` (what they need) -> `scheduler` (starts them on
a pool of local processes or of Dask's workers) -> `store` (run directories) -> `dataset` (Parquet)
-> `groups` (averages) -> `figures`.
"""
