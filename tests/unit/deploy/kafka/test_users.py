from pathlib import Path

import pytest

from deploy.kafka.credentials import Credentials
from deploy.kafka.users import UsersNotCreated, create_users
from diem.kafka.config import Names
from tests.support.ports import free_port


async def test_error_has_the_reason_why_no_controller_creates_the_users(tmp_path: Path) -> None:
    Credentials.prepare(tmp_path)
    with pytest.raises(UsersNotCreated, match=r"cannot be created: .*Connect call failed"):
        await create_users(tmp_path, [free_port()], Names("try."), within=0.3)
