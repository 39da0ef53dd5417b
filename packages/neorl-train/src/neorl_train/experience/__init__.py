"""From a source to what one algorithm is trained on."""

from neorl_train.experience._experience import Experience as Experience
from neorl_train.experience._experience import experience as experience

__all__ = [
    "Experience",
    "experience",
]
