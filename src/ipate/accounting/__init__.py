"""What a release costs a person: pure functions on arrays, one file per bound."""
