"""The search for the best way to find categories: candidates, compared on held-out labels."""
