"""The parity suite: what to run and record (`contract`), how to compare it, and what may be claimed."""
