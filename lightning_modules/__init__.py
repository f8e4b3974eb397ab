"""Everything that knows Lightning; the mathematics is in releg."""

from pathlib import Path

CONFIGS = Path(__file__).parent / "configs"  # what is shipped
