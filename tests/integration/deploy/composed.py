"""Program of a test: the services of a resolved Compose file as processes in one network namespace, as its containers.

``python -m tests.integration.deploy.composed PROJECT.json FOLDER MODE`` starts PostgreSQL, Kafka, DIEM and Prometheus
with the file's commands, variables and configurations, waits for the file's own health checks, and prints the first
update that a watcher gets, and the targets that Prometheus scrapes.
"""

import asyncio
import json
import os
import pwd
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx

from deploy.kafka import brokers
from deploy.kafka.program import prepare
from tests.integration.deploy.prometheus import program
from tests.support.patience import PATIENCE_S
from tests.support.postgres import programs
from tests.support.running import end

ENDPOINT: Final = "/compose/one"
UNTIL: Final = 4 * PATIENCE_S


class Composed:
    """The processes of a project."""

    def __init__(self, project: Mapping[str, Any], folder: Path, stack: AsyncExitStack) -> None:
        self._services = project["services"]
        self._configs = project["configs"]
        self._folder = folder
        self._stack = stack
        self.state = folder / "state"
        # Paths inside of containers, and here.
        self._paths = {"/var/lib/diem": str(self.state)}
        self._environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    async def postgres(self) -> None:
        """Start the service, as its image does: a new cluster, with the variables' user and database."""
        service, user = self._services["postgres"], pwd.getpwnam("postgres")
        bin_, data = programs(), self._folder / "postgres"
        data.mkdir()
        os.chown(data, user.pw_uid, user.pw_gid)
        variables = service["environment"]
        options = (f"--username={variables['POSTGRES_USER']}", f"--auth={variables['POSTGRES_HOST_AUTH_METHOD']}")
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
        await self._run(str(bin_ / "initdb"), "-D", str(data), *options, **as_user)
        own = (f"unix_socket_directories={data}",)
        argv = (str(bin_ / "postgres"), "-D", str(data), *service["command"], "-c", *own)
        await self._start("postgres", argv, {}, **as_user)
        self._environment["PATH"] += f":{bin_}"
        await self._until_healthy("postgres")
        await self._run("createdb", "--host=127.0.0.1", f"--username={variables['POSTGRES_USER']}", "diem")

    async def kafka(self) -> None:
        """Start the service, as its image does: each variable is a setting."""
        (plan,) = plans = brokers.plans(self._folder, [(9092, 9093)])
        launched = await asyncio.to_thread(prepare)
        brokers.write(plans)
        variables = self._services["kafka"]["environment"]
        settings = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): value
            for name, value in variables.items()
            if name != "KAFKA_HEAP_OPTS"
        }
        settings["log.dirs"] = str(plan.directory / "data")
        plan.properties_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        await self._start("kafka", launched.argv(plan), {})
        await self._until_healthy("kafka")

    async def diem(self, mode: str) -> None:
        """Start the service of a mode."""
        service = self._services[mode]
        variables = {**service["environment"], "DIEM_STATE_DIR": str(self.state)}
        self._environment |= {"DIEM_STATE_DIR": str(self.state)}
        await self._start("diem", ["diem", *self._here(service)], variables)
        await self._until_healthy(mode)

    async def first_update(self) -> str:
        """Return the first update of a watcher, as printed."""
        watching = await self._start("watch", ["diem", "watch", ENDPOINT], {}, stdout=PIPE)
        assert watching.stdout is not None
        lines = watching.stdout

        async def first() -> str:
            while ENDPOINT.encode() not in (line := await lines.readline()):
                assert line, "the watcher has ended"
            return line.decode().strip()

        async with asyncio.timeout(UNTIL):
            update = asyncio.create_task(first())
            for number in range(1000):
                file = self._folder / "value.json"
                file.write_text(json.dumps({"number": number}))
                await self._run("diem", "put", ENDPOINT, str(file))
                done, _ = await asyncio.wait([update], timeout=1)
                if done:
                    break
            return await update

    async def scraped(self) -> list[str]:
        """Start Prometheus; return the names of what it scrapes once all of them answer."""
        argv = [str(program("prometheus")), *self._here(self._services["prometheus"])]
        argv = [each.replace("=/prometheus", f"={self._folder / 'series'}") for each in argv]
        await self._start("prometheus", argv, {})
        async with asyncio.timeout(UNTIL), httpx.AsyncClient(trust_env=False) as http:
            while True:
                try:
                    answer = await http.get("http://127.0.0.1:9090/api/v1/targets")
                    active = answer.json()["data"]["activeTargets"]
                    if active and all(each["health"] == "up" for each in active):
                        return sorted({each["labels"]["process"] for each in active})
                except (httpx.TransportError, ValueError):
                    pass
                await asyncio.sleep(0.2)

    def _here(self, service: Mapping[str, Any]) -> list[str]:
        """Write a service's configurations to files; return its command with their paths."""
        for each in service.get("configs", ()):
            config = self._configs[each["source"]]
            content = config["content"] if "content" in config else Path(config["file"]).read_text()
            file = self._folder / "configs" / each["source"] / Path(each["target"]).name
            file.parent.mkdir(parents=True, exist_ok=True)
            self._paths[each["target"]] = str(file)
            file.write_text(content)
        for each in service.get("configs", ()):
            file = Path(self._paths[each["target"]])
            file.write_text(self._moved(file.read_text()).replace("15s", "1s"))
        return [self._moved(word) for word in service["command"]]

    def _moved(self, text: str) -> str:
        for inside, here in self._paths.items():
            text = text.replace(inside, here)
        return text

    async def _until_healthy(self, name: str) -> None:
        check = self._services[name]["healthcheck"]["test"]
        assert check[0] == "CMD"
        if shutil.which(check[1], path=self._environment["PATH"]) is None:
            # nc is in the image, and may not be here.
            assert check[1:] == ["nc", "-z", "127.0.0.1", "9092"]
            check = ["CMD", "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9092"]
        async with asyncio.timeout(UNTIL):
            while True:
                log = (self._folder / "health.log").open("ab")
                process = await asyncio.create_subprocess_exec(
                    *check[1:], env=self._environment, stdout=log, stderr=STDOUT
                )
                log.close()
                if await process.wait() == 0:
                    return
                await asyncio.sleep(0.3)

    async def _run(self, *argv: str, **options: Any) -> None:
        process = await asyncio.create_subprocess_exec(
            *argv, env=self._environment, stdout=PIPE, stderr=STDOUT, cwd=self._folder, **options
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()

    async def _start(self, name: str, argv: Sequence[str], variables: Mapping[str, str], **options: Any) -> Process:
        log = (self._folder / f"{name}.log").open("wb")
        self._stack.callback(log.close)
        process = await asyncio.create_subprocess_exec(
            *argv,
            **{"stdout": log, "stderr": STDOUT, "cwd": self._folder, **options},
            env={**self._environment, **variables},
        )
        self._stack.push_async_callback(end, process)
        return process


async def main(project: Path, folder: Path, mode: str) -> None:
    """Run the services of a mode and report."""
    async with AsyncExitStack() as stack:
        composed = Composed(json.loads(project.read_text()), folder, stack)
        await composed.postgres()
        if "kafka" in json.loads(project.read_text())["services"]:
            await composed.kafka()
        await composed.diem(mode)
        print(json.dumps({"update": await composed.first_update(), "scraped": await composed.scraped()}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
