"""What all packages say to each other: channels, experience, protocols, scaling."""
