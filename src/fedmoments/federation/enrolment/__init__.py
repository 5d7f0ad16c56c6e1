"""Start-up kits: one file a party, with a token that admits it once, and the desk at which the token is handed in."""
