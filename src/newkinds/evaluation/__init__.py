"""How good a run is, judged by true classes."""
