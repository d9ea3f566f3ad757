"""A TCP proxy that loses, holds, delays or repeats bytes on command, to cause the faults that a lock must survive.

with Proxy(("127.0.0.1", server_port)) as proxy:
    client = connect(proxy.port)
    proxy.to_client.drop(chunks=1)  # the server will act, but its answer is lost
    ...
    proxy.to_client.wait_for_caught(1)  # wait for the event, not for a time
"""

from holdfast.testing.proxy.direction import Count, Direction
from holdfast.testing.proxy.proxy import Proxy

__all__ = ["Proxy", "Direction", "Count"]
