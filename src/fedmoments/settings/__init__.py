"""What people configure, as values that TOML files hold."""
