"""Servers that live in a simulated world: the production clients talk to them over simulated streams, byte by byte."""
