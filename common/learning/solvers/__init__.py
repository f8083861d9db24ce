"""How the problems of `common.learning.erm` are solved: F by blocks of rows, and the span of few rows."""
