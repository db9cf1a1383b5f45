"""What to run (recipe, plan, draws) and what to record (bundle). Imports neither torch nor jax."""
