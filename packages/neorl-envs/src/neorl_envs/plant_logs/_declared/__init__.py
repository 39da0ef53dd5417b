"""What ``plant.toml`` declares about the plant, as functions for a plant model."""
