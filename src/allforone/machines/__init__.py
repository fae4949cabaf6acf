"""Clients somewhere else: sites that hold their own data, and what carries questions to them."""
