"""The figures of the pages: the steps that measure them, the run that keeps them, and the pages that show them."""
