"""Models of teachers and students: named models, dry fits, isolation and worker processes."""
