"""int8: which convolutions of a program take bytes, the ranges of what they read, and what that changes."""
