"""Methods of papers that were tried and are not part of p4reduce; README.md has what was found."""
