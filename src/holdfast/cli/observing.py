"""`holdfast observe grafana|alerts`: what goes with the metrics, to be given to Grafana and Prometheus."""

from __future__ import annotations

import sys
from importlib.resources import files

from . import exits
from .options import Options, Usage

FILES = {"grafana": "grafana.json", "alerts": "alerts.yml"}


def observe(options: Options) -> int:
    if options.name not in FILES:
        raise Usage("which of them? Say `observe grafana` or `observe alerts`", "observe")
    sys.stdout.write((files("holdfast.observe") / FILES[options.name]).read_text("utf-8"))
    return exits.OK
