"""In-context heads: features of a context with their labels, and of queries, to logits."""
