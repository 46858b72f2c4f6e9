"""Runs the test suite that the Python client publishes, from its own checkout, against our server.

Nothing of that suite is part of this project: whoever runs it brings a checkout of
`apache/pulsar-client-python` and an interpreter that has what its tests import.
"""
