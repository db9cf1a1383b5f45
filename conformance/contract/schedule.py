"""The learning-rate table: float64, one value an optimizer step."""

import numpy as np

from conformance.contract.errors import ContractError
from conformance.contract.recipe import Recipe


def learning_rates(recipe: Recipe, total_steps: int) -> np.ndarray:
    """Linear warm-up from 0, then cosine to 0 (transformers' `get_cosine_schedule_with_warmup`): float64 [total_steps].

    Step 0 has rate 0 when there is a warm-up.
    """
    warmup, peak = recipe.schedule.warmup_steps, recipe.optimizer.learning_rate
    if warmup >= total_steps:
        raise ContractError(f"schedule.warmup_steps = {warmup} is not below the {total_steps} steps of the run")
    step = np.arange(total_steps, dtype=np.float64)
    progress = np.maximum(step - warmup, 0) / (total_steps - warmup)
    cosine = 0.5 * (1 + np.cos(np.pi * progress))
    return peak * np.where(step < warmup, step / max(warmup, 1), cosine)
