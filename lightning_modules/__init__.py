"""Everything that uses Lightning; the mathematics is in releg."""

from pathlib import Path

ROOT = Path(__file__).parents[1]  # of the repository
CONFIGS = ROOT / "lightning_modules" / "configs"  # what is shipped
RESULTS = ROOT / "results"  # what is published
OWN_RESULTS = RESULTS / "mine"  # what a user trains; git ignores it
