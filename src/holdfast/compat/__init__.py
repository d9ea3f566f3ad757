"""Other libraries' locks, on any store of ours: an import line is the whole migration. See docs/migrating.md."""
