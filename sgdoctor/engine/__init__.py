"""Rules over facts: loading, conditions, evaluation, selection, recommendations."""
