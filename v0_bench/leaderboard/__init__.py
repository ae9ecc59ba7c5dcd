"""The benchmark: predictors on pools under protocols, ranked with intervals."""
