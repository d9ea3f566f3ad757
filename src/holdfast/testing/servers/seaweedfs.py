"""SeaweedFS, for its S3 API: conditional writes are exact in it, which they are not in every imitation of S3."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

from holdfast.testing.ports import LOOPBACK
from holdfast.testing.servers.base import PROBE_SECONDS, Server


class SeaweedFS(Server):
    """Access key `holdfast`, secret key `holdfast`."""

    scheme = "http"
    port_count = 8  # S3, master, volume and filer, each with HTTP and gRPC

    def prepare(self) -> None:
        identity = {
            "name": "holdfast",
            "credentials": [{"accessKey": "holdfast", "secretKey": "holdfast"}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        self.write(self.data / "identities.json", json.dumps({"identities": [identity]}))

    def command(self) -> list[str]:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self.ports
        return [
            self.program,
            f"-logdir={self.folder}",
            "server",
            f"-dir={self.data}",
            f"-ip={LOOPBACK}",
            f"-ip.bind={LOOPBACK}",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            f"-filer.localSocket={self.folder / 'filer'}",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.config={self.data / 'identities.json'}",
            f"-s3.port.grpc={s3_grpc}",
            f"-s3.localSocket={self.folder / 's3'}",
            "-s3.port.iceberg=0",  # it and the next have ports of their own, at which a second server would fail
            "-s3.port.lance=0",
            "-s3.iam=false",
            *self.extra,
        ]

    def stop(self) -> None:
        super().stop()
        for port in self.ports:  # four sockets have their place in its source, and stay there
            for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
                left.unlink(missing_ok=True)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/status", timeout=PROBE_SECONDS) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError:
            return False
