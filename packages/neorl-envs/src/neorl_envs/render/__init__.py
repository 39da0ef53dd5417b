"""Pictures of trajectories; needs the extra ``render``, and nothing else imports it."""

from neorl_envs.render._trends import picture as picture
from neorl_envs.render._trends import png as png
from neorl_envs.render._trends import trends as trends

__all__ = ["picture", "png", "trends"]
