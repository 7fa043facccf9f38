"""Engines: each turns private rows into a lesson for the student and charges every release."""
