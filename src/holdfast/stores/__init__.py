"""The backends. Each speaks to one kind of server (or to none) and knows nothing of leases or waiting."""
