"""The demonstration, and the local stack that the tests and the benchmarks use too."""
