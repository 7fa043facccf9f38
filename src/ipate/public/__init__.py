"""What is learnt from the public pool alone: features and cells; no private row may decide anything here."""
