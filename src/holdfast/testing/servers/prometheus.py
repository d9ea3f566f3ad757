"""Prometheus, which scrapes what it is told to, every second."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from holdfast.testing.ports import LOOPBACK
from holdfast.testing.servers.base import PROBE_SECONDS, Server

CONFIGURATION = """\
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [rules.yml]
scrape_configs:
  - job_name: holdfast
    file_sd_configs:
      - files: [targets.json]
        refresh_interval: 1s
"""


class Prometheus(Server):
    scheme = "http"

    def prepare(self) -> None:
        self.write(self.data / "prometheus.yml", CONFIGURATION)
        self.write(self.data / "rules.yml", "groups: []\n")
        self.scrape()

    def command(self) -> list[str]:
        return [
            self.program,
            f"--config.file={self.data / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.data / 'series'}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
            "--web.enable-lifecycle",
            *self.extra,
        ]

    def answers(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=PROBE_SECONDS) as response:
            return bool(response.status == 200)

    def scrape(self, *ports: int) -> None:
        """From now on, processes that serve their metrics on these ports of this machine."""
        targets = [{"targets": [f"{LOOPBACK}:{port}" for port in ports]}] if ports else []
        self.write(self.data / "targets.json", json.dumps(targets))

    def watch(self, rules: str) -> None:
        """From now on, these alert rules."""
        self.write(self.data / "rules.yml", rules)
        with urllib.request.urlopen(f"{self.url}/-/reload", b"", PROBE_SECONDS):
            pass

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now; an expression that makes no sense raises HTTPError."""
        question = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{question}", timeout=PROBE_SECONDS) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return found

    def promtool(self, *arguments: str, folder: Path) -> str:
        """What promtool says; raises CalledProcessError if it disapproves."""
        tool = str(Path(self.program).with_name("promtool"))
        done = subprocess.run([tool, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout
