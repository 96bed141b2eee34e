"""Basics for all other folders: errors, argument checks, safe files, modules, batches and processes; imports none."""
