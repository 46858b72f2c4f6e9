"""Metadata stores: the contract, the stores behind it, and what is built on them."""
