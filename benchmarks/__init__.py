"""Benchmarks: speed as ratios inside one run, against a floor or a peer, never as a timed test."""
