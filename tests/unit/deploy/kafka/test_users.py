import asyncio
from pathlib import Path
from typing import Any

import pytest

from deploy.kafka import users as module
from deploy.kafka.credentials import BrokerCredentials
from deploy.kafka.users import UsersNotCreated, create_users
from diem.kafka.config import Names
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port


async def test_error_has_the_reason_why_no_controller_creates_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, send_all = asyncio.get_running_loop(), module._send_all
    time = loop.time

    async def last_attempt(*arguments: Any) -> None:
        try:
            await send_all(*arguments)
        finally:
            # The limit passes after the attempt, however long that takes.
            monkeypatch.setattr(loop, "time", lambda: time() + 2 * PATIENCE_S)

    monkeypatch.setattr(module, "_send_all", last_attempt)
    BrokerCredentials.prepare(tmp_path)
    with pytest.raises(UsersNotCreated, match=r"cannot be created: .*Connect call failed"):
        await create_users(tmp_path, [free_port()], Names("try."), within=PATIENCE_S)
