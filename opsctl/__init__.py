"""Roll versioned patch sets onto a live SGLang host, prove them, and roll back."""

__version__ = "0.1.0"
