"""The laboratory: failures of locks, run in the real simulator, on a page. `holdfast lab`; see docs/lab.md.

scenarios   what can be tried, as data: who does what, what strikes, what would have helped
stores      which stores the simulator runs, and what can happen to each
stage       one run: the real engine and stores in virtual time, from a seed and a list of strikes
tape        what happened, as lanes and events: of a run, or of a history that `holdfast verify` has kept
app         the page, and the one question behind it
"""
