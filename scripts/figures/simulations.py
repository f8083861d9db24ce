"""What figures of simulations measure at a point."""

from __future__ import annotations

from typing import Any

from parley.learner.experiments.simulation import SimulationSettings, run_simulation


def simulated(**settings: Any) -> dict[str, Any]:  # noqa: ANN401 -- the fields of SimulationSettings
    """Run a simulation, and return `SimulationResult.to_json`."""
    return run_simulation(SimulationSettings(**settings)).to_json()
