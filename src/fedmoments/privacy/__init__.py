"""What leaves a party, who can read it, and what it proves: policies are the client's own, and come first."""
