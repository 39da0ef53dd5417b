"""The part of the main job that processes other than the first take."""
