"""The page of a run."""
from bench.figures.document import Document


def html(document: Document) -> str:
    return ""
