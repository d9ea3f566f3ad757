"""For authors of stores and for users' own tests: a conformance suite, real servers, a proxy that fails on command."""
