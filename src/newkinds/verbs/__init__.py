"""The verbs that begin with data: train, discover, count; and what there is to choose from."""
