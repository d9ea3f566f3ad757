"""Other people's locks, used as their own documentation says, under the same attack as ours. `holdfast verify --library NAME`.

adapters   a class of a few lines for each library: take, look whether it is still held, give back
turns      what a worker does with it while the nemesis strikes
hand       a process that does with it what it is told, one thing after the other
probes     questions that one or two such processes answer: what a kill leaves behind, who may release what …
matrix     all of them, as a table. `python -m holdfast.verify.libraries.matrix`
"""
