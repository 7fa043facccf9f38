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
