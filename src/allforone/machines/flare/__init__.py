"""Sites that do not share data, on NVIDIA FLARE: kits, the two ends of its wire, and the run that goes over it."""
