"""What stands in each marked place."""
from bench.figures.pages import Places

PLACES: Places = {}
