"""What makes the parts of the project that are generated: data, docs, archives. Run from the checkout."""
