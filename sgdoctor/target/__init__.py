"""What happens to a deployment that moves to another release: `sgdoctor check --target sglang=VERSION`.

Every boundary is found by asking the catalogue, or the deployment as it would be, at each release in between.
"""
