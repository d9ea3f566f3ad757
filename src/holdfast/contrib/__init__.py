"""holdfast in the framework that you have: a module each, and an extra each. Nothing else of holdfast knows of these."""
