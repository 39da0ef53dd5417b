"""The sections of the report, one function each; ``report/_page.py`` arranges them."""
