"""One generator of random valid programs, and what all interpreters must agree on for each of them."""
