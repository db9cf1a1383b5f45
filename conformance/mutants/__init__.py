"""A mutation run: how much of a change that nobody chose does the ladder see, and how much do the checks that people use today."""
