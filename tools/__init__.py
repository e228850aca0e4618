"""What is run by hand or in CI, never by sgdoctor itself."""
