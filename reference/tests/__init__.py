"""The reference tested against itself, each check with a control that must fail it."""
