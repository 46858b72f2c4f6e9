"""The asyncio SDK. It knows the platform only from outside."""
