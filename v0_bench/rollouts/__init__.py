"""Rollouts: sampling many checkpoints on many queries, so that nothing done is done twice."""
