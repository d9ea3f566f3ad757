"""What we use of PyMySQL and asyncmy beyond what they promise is as `connection.py` and `connection_aio.py` take it to be."""

from __future__ import annotations

import inspect
from typing import Any

import asyncmy.connection
import asyncmy.protocol
import pymysql.connections
import pymysql.protocol
from pymysql.constants import CLIENT, COMMAND, CR

from holdfast.stores.mysql.connection_aio import Wary


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_parts_of_pymysql_that_we_use_are_there() -> None:
    connection: Any = pymysql.connections.Connection
    assert parameters(connection._read_bytes) == ["self", "num_bytes"]
    assert parameters(connection._read_packet) == ["self", "packet_type"]
    assert parameters(pymysql.protocol.FieldDescriptorPacket) == ["data", "encoding"]
    assert parameters(connection._write_bytes) == ["self", "data"]
    assert parameters(connection._force_close) == ["self"]
    assert parameters(connection._request_authentication) == ["self"]
    assert parameters(connection._execute_command) == ["self", "command", "sql"]
    assert parameters(connection.connect) == ["self", "sock"]
    made = connection(defer_connect=True)
    assert made._sock is None
    assert made._result is None
    assert made._secure is False
    source = inspect.getsource(connection)
    assert all(f"self.{field} = " in source for field in ("server_capabilities", "_auth_plugin_map", "ssl"))
    assert all(isinstance(code, int) for code in (CLIENT.SSL, COMMAND.COM_QUERY, CR.CR_SERVER_LOST))


def test_the_parts_of_asyncmy_that_we_use_are_there() -> None:
    found = set(dir(asyncmy.connection.Connection))
    assert {"query", "next_result", "rollback", "get_server_info", "connect", "read_packet"} <= found
    assert "_get_server_information" in found  # after it has dialled, and before TLS asks for the name of the host
    # Each column's description comes through here, and no compiled code goes past it.
    assert asyncmy.connection.Connection in Wary.__mro__
    assert asyncmy.protocol.MysqlPacket(b"abc", encoding="utf8").get_all_data() == b"abc"
