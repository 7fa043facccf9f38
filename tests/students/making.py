"""Deployed students of made-up hospital rows."""

import numpy as np

from ipate.data.schema import schema_from
from ipate.students.deployed import DeployedStudent, name_inputs
from ipate.students.student import class_names, find_student

CLASSES = ("home", "ward", "clinic")


def raw(n=150, seed=0):
    """Public rows as text, as a csv file has them, with the class of each."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    columns = {
        "age": [f"{value:.1f}" for value in rng.normal(50, 3, n) + 15 * y],
        "sex": [("F", "M")[value] for value in rng.integers(2, size=n)],
        "ward": [("A", "B", "C")[value] for value in np.where(rng.random(n) < 0.2, 0, y)],
        "admitted": [f"2025-0{1 + value}-1{value}" for value in rng.integers(9, size=n)],
    }
    return columns, y


def deployed(model="logistic", *, labels=None, classes=CLASSES, **more):
    """A student of the made-up rows, with the public schema inside."""
    columns, y = raw()
    schema = schema_from(columns, categories=["sex", "ward"], dates=["admitted"])
    student = find_student(model)
    trained = student.teach(
        student.make({}, seed=0), schema.encode(columns), y if labels is None else labels, classes=classes
    )
    name_inputs(trained, schema.encoded_names)
    return DeployedStudent(model=trained, classes_=class_names(classes), schema=schema, **more)
