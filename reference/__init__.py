"""The recipe in PyTorch (transformers, PEFT, TRL): right by definition, and tested against itself first."""
