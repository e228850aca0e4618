"""Kernel configuration files on disk: where they lie, what is wrong with them, which one would be used."""
