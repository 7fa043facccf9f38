"""The two blocks of a command's JSON as one mapping, for tests of figures wherever they stand."""


def flat(found):
    """Join what may be published, what may not, and the files; groups are joined by id."""
    if "publishable" not in found:
        return found
    private = {**found.get("files", {}), **(found["private"] or {})}
    costs = {group["group"]: group for group in private.pop("groups", ())}
    named = {name: value for name, value in found.items() if name not in ("publishable", "private", "files")}
    joined = {**named, **found["publishable"]}
    joined |= {name: value for name, value in private.items() if joined.get(name) is None}
    return joined | {"groups": [{**group, **costs.get(group["group"], {})} for group in joined["groups"]]}


PRIVATE = {
    "accuracy",
    "plurality_accuracy",
    "label_accuracy",
    "voting_accuracy",
    "student_accuracy",
    "balanced_accuracy",
    "majority_accuracy",
    "by_class",
    "by_level",
    "teachers_accuracy",
    "comparison",
    "compare",
    "standard",
    "ceiling",
}


def private_below_releasable(found, inside=False):
    """Yield the names of figures from raw votes or true labels that stand in or below an object called releasable."""
    if isinstance(found, list):
        for entry in found:
            yield from private_below_releasable(entry, inside)
    if isinstance(found, dict):
        inside = inside or "releasable" in found.values()
        for name, value in found.items():
            if inside and name in PRIVATE and value is not None:
                yield name
            yield from private_below_releasable(value, inside)
