"""A metadata store that can be replaced under its callers, while they go on reading and writing.

`store.py` is what callers see. `part.py` obeys a migration; what a phase asks of a process is in
`postures.py`.
"""
