"""From images to features: a backbone gives tokens, an organizer makes one feature per image of them."""
