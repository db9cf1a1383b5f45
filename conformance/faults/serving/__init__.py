"""Planted faults of serving: of the rung's recorder and server, of the measuring client, of the sweep and its comparison."""
