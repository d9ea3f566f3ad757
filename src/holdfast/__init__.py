"""holdfast: mutual exclusion between processes and machines that tells the truth."""
