import asyncio

from diem.client import UpdatesClient


async def main() -> None:
    async with UpdatesClient("ws://127.0.0.1:8101/ws", data=True) as client:
        await client.subscribe({"/book/ACME": None})
        async for event in client:
            if event.has_value:
                print(event.value, flush=True)


asyncio.run(main())
