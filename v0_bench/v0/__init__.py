"""The V0 model: frozen backbone, residual query adapter, in-context head."""
