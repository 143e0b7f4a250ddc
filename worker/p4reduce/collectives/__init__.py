"""The collectives, one to a file; all are the same sparse block sum with other blocks declared."""
