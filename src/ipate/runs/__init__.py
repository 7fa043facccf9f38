"""Whole runs in a folder: config, settings, stages, resume, withdrawal."""
