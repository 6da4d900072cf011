"""The search for the best way to find categories: candidates, compared on labels that are hidden for a moment."""
