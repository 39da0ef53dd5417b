"""Learners that train on rollouts in a model of the log: MOPO and its relatives."""
