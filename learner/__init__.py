"""The learner's service: it trains a model by asking parties private queries."""
