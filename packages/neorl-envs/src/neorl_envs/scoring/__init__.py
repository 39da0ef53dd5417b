"""Scores of policies from whole episodes: returns, costs, and normalised scores."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_envs.scoring._gymnasium import GymnasiumJudge as GymnasiumJudge
    from neorl_envs.scoring._gymnasium import episode_return as episode_return
    from neorl_envs.scoring._scores import TEST_MODES as TEST_MODES
    from neorl_envs.scoring._scores import Anchors as Anchors
    from neorl_envs.scoring._scores import EpisodeScores as EpisodeScores
    from neorl_envs.scoring._scores import Robustness as Robustness
    from neorl_envs.scoring._scores import anchors as anchors
    from neorl_envs.scoring._scores import normalised_score as normalised_score
    from neorl_envs.scoring._scores import robustness as robustness
    from neorl_envs.scoring._scores import run_episode as run_episode
    from neorl_envs.scoring._scores import score_episodes as score_episodes
    from neorl_envs.scoring._scores import scores as scores
    from neorl_envs.scoring._scores import test_mode as test_mode
    from neorl_envs.scoring._scores import within_limits as within_limits

__all__ = [
    "TEST_MODES",
    "Anchors",
    "EpisodeScores",
    "GymnasiumJudge",
    "Robustness",
    "anchors",
    "episode_return",
    "normalised_score",
    "robustness",
    "run_episode",
    "score_episodes",
    "scores",
    "test_mode",
    "within_limits",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
