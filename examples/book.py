import asyncio

from diem.client import Client


async def main() -> None:
    async with Client("http://localhost:8080") as client:
        async for update in client.watch("/book/ACME"):
            print(update.data, flush=True)


asyncio.run(main())
