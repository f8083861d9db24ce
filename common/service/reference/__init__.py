"""A service's reference as a page, drawn from its OpenAPI document."""
