"""An honest leaderboard: named settings × contestants × seeds, with Local always in it."""
