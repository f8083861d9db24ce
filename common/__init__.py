"""The mathematics, protocol and schemas shared by parties and learners."""
