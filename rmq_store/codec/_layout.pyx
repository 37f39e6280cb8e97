"""Gives the constants of _layout.pxd to Python. layout.py tells the same fields with a sentence for each."""
