"""How the problems of `parley.common.learning.erm` are solved: F by blocks of rows, and the span of few rows."""
