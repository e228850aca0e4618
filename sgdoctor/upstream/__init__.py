"""How SGLang itself behaves, as functions of a release."""
