"""Pictures of a run: one file per figure. `sheet` is what they share. Nothing here reads files or knows of runs."""
