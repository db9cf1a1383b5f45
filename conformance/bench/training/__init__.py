"""The training benchmark: launches of a stack, timed step by step and recorded while they are timed."""
