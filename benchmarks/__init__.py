"""Speed: against the plain loop, against the limit of the machine, against peers, and how it grows."""
