"""What holds for every test."""

from hypothesis import settings

# The same examples in every run, so that a change and not chance decides; no deadline, as a first call may compile.
settings.register_profile("releg", derandomize=True, deadline=None)
settings.load_profile("releg")
