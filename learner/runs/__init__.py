"""Describes a run as the learner holds it: its states, its terms, its plan."""
