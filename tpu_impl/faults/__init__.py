"""Faults planted into the port at its own seams, and a recorder that records what each of them changes."""
