"""Locks for people who are in a transaction already."""
