"""The collectives, one to a file, as functions over a session; all are the same sparse block sum with other blocks."""
