"""What makes the site out of the pages: verbs from the parser, the Python reference, pages of the repository's root."""
