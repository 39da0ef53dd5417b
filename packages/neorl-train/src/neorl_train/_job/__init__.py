"""The main job, stage by stage."""
