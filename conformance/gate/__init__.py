"""The gate: which claims may be reported, recomputed from bundles and raw measurements alone."""
