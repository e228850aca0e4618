"""Two recordings of a deployment held against each other: what changed, what got worse, what goes with it."""
