"""The report and its formats: one module a format, all of them views of the same structs."""
