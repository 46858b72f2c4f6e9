"""Workloads, history files and the rules that judge them."""
