"""The party's HTTP interface."""
