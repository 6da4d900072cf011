"""What a run leaves on the disk: its directory, its settings, its protocol."""
