"""The simulated world, contract suites, launchers of real servers, planted bugs."""
