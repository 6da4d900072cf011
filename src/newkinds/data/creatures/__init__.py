"""Creatures: the data set that needs no files, because it is drawn by code."""
