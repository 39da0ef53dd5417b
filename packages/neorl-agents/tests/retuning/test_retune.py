"""Retuning against the best gain of a linear plant, and a choice that can be made by hand."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    TODAY,
    ChoiceRule,
    IncumbentEpisodes,
    OtherController,
    PlantFacts,
    Prediction,
    Refusal,
    RetuneSettings,
    SearchSettings,
    choose,
    searched_changes,
