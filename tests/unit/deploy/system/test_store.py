"""The URL of the store: from an environment, and from the running system."""

from pathlib import Path

import pytest

from deploy.system import store
from deploy.system.control import ControlFailed, serve
from deploy.system.state_dir import NotUp, StateDir
from deploy.topology import Mode
from tests.unit.deploy.system.test_up import of_mode


@pytest.mark.parametrize(
    ("name", "text", "url"),
    [
        ("DIEM_DATA_DATABASE_URL", "postgresql://me:secret@h/db", "postgresql://me:secret@h/db"),
        ("DIEM_DATABASE_URL", "sqlite:////srv/one.db", "sqlite:////srv/one.db"),
        ("diem_database_url", "sqlite:///one.db", "sqlite:///{cwd}/one.db"),
        ("DIEM_STATE_DIR", "state", "sqlite:///{cwd}/state/data.db"),
        ("OTHER", "1", "sqlite:///{cwd}/.diem/data.db"),
    ],
)
def test_the_url_is_that_of_the_data_service(
    name: str, text: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert store.configured_url({name: text}) == url.format(cwd=tmp_path)


async def test_a_running_system_names_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up, state = of_mode(Mode.SINGLE, tmp_path), StateDir(tmp_path)
    monkeypatch.setenv("DIEM_DATA_DATABASE_URL_FILE", str(tmp_path / "url"))
    async with serve(state, {store.COMMAND: up._store}):
        with pytest.raises(ControlFailed, match=r"/url: "):
            await store.running_url(state)
        (tmp_path / "url").write_text("postgresql://me:secret@h/db\n")
        (tmp_path / "url").chmod(0o600)
        assert await store.running_url(state) == "postgresql://me:secret@h/db"
    with pytest.raises(NotUp):
        await store.running_url(state)
