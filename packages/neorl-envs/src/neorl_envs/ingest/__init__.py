"""Files of many formats into a ``Dataset``."""
