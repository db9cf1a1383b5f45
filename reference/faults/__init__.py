"""Planted faults of the reference: what TRL, PEFT or transformers do where it corrects them, and slips of its own."""
