"""Running policies: on the plant, on a log, while training."""
