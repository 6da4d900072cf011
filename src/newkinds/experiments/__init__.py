"""Grids of runs and the tables they become: the paper's, tables of your own, and the demo."""
