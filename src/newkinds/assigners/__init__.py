"""From features to categories."""
