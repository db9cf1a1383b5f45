"""Planted faults: proof that the ladder sees what it claims to see."""
