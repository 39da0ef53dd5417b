"""The part of the main job that additional processes carry out."""
