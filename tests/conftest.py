"""Settings for all tests."""

from hypothesis import settings

# The same examples in every run, and no stop-watch: a loaded machine must not turn a property red.
settings.register_profile("holdfast", deadline=None, derandomize=True)
settings.load_profile("holdfast")
