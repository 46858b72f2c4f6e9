"""Pulsar's binary protocol, sans-IO: bytes in, commands out, and back."""
