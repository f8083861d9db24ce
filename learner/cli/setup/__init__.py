"""The commands by which a learner is set up: studies from tables, settings that explain themselves."""
