"""What was found: categories and their members, as tables, pictures and a page; using a finished run."""
