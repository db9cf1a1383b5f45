"""Serving a merged checkpoint with vLLM: what is started, what it is asked, what is recorded of its answers. No framework."""
