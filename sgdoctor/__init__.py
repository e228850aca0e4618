"""sgdoctor, the doctor for SGLang deployments."""

__version__ = "0.1.0"
