"""The model, the training loop, and the cache of tokens that saves most of its work."""
