"""The bound on bytes in flight."""

import asyncio

from anabranch.metadata.byte_budget import ByteBudget


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_waiters_are_let_in_by_order_of_arrival() -> None:
    budget = ByteBudget(10)
    await budget.take(8)
    order: list[str] = []

    async def take(name: str, byte_count: int) -> None:
        await budget.take(byte_count)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        for name, byte_count in (("large", 9), ("small", 1), ("other", 9)):
            group.create_task(take(name, byte_count))
        await settle()
        assert order == [], "a small one does not overtake"
        budget.give_back(8)
        await settle()
        assert order == ["large", "small"]
        assert budget.taken_bytes == 10
        budget.give_back(9)
        await settle()
    assert order == ["large", "small", "other"]


async def test_waiter_that_is_cancelled_takes_nothing() -> None:
    budget = ByteBudget(10)
    await budget.take(10)
    loop = asyncio.get_running_loop()
    first, second = (loop.create_task(budget.take(n)) for n in (6, 5))
    await settle()
    first.cancel()
    budget.give_back(10)
    await settle()
    assert second.done()
    assert budget.taken_bytes == 5


async def test_waiter_cancelled_just_after_it_was_let_in_gives_back() -> None:
    budget = ByteBudget(10)
    await budget.take(10)
    waiter = asyncio.get_running_loop().create_task(budget.take(6))
    await settle()
    budget.give_back(10)
    waiter.cancel()
    await settle()
    assert waiter.cancelled()
    assert budget.taken_bytes == 0
