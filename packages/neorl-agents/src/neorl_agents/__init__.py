"""Networks, offline reinforcement learning algorithms and the policy artefact."""
