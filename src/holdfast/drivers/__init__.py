"""What runs the core: threads, asyncio, or a simulator. The core owns no loop, no clock, no thread; a driver does."""
