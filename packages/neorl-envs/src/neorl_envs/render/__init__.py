"""Plots of trajectories; needs the extra ``render`` and is not imported by other modules."""

from neorl_envs.render._animate import animate as animate
from neorl_envs.render._compare import compare as compare
from neorl_envs.render._grid import grid_picture as grid_picture
from neorl_envs.render._trends import picture as picture
from neorl_envs.render._trends import png as png
from neorl_envs.render._trends import trends as trends
from neorl_envs.render._window import Window as Window

__all__ = ["Window", "animate", "compare", "grid_picture", "picture", "png", "trends"]
