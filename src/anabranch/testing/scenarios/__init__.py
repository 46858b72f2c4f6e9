"""One module per scenario; each registers itself with `anabranch.testing.simulation.scenario`.

All are imported by `load_scenarios`; nothing else needs to name them.
"""
