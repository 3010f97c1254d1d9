import asyncio

from diem.process.tasks import on_failure


async def test_only_an_error_is_reported() -> None:
    reported: list[BaseException] = []
    failure = OSError("full disk")

    async def work(error: Exception | None, *, forever: bool) -> None:
        if error is not None:
            raise error
        if forever:
            await asyncio.Event().wait()

    tasks = [
        asyncio.create_task(work(None, forever=False)),
        asyncio.create_task(work(failure, forever=False)),
        asyncio.create_task(work(None, forever=True)),
    ]
    for task in tasks:
        task.add_done_callback(on_failure(reported.append))
    await asyncio.wait(tasks[:2])
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert reported == [failure]
