"""The port: the recipe in JAX (Tunix's Gemma 4, Qwix LoRA, optax, Orbax, grain). Each file is the twin of reference/'s."""
