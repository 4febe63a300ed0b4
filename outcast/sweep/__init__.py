"""Many runs of one configuration: which, in what order, where, and what they come to.

The way of the data: `points` (which runs) -> `plan` (what they take) -> `scheduler` (on a pool of
local processes or of Dask's workers) -> `store` (run directories) -> `dataset` (Parquet) ->
`statistics`, `groups`, `figures`.
"""
