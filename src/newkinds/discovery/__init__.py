"""What was found: categories and their members, as tables, pictures and a page; a finished run put to use."""
