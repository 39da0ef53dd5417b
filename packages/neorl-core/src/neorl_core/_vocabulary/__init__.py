"""The vocabulary that all packages share: channels, experience, protocols, scaling."""
