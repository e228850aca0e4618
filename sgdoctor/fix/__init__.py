"""Repairs: planned from facts, shown, applied atomically with a manifest, undone."""
