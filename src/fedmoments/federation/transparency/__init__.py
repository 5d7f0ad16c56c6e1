"""What lets parties check a server's log without trusting it: proofs, signed heads, and notes of witnesses."""
