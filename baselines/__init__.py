"""The rivals: one predictor a file, each registered as a third party's would be."""
