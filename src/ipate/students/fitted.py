"""What a fitted `PATEClassifier` does with its student: predict, and deploy it."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ipate.data.frames import check_form, without
from ipate.errors import InputError, IpateError
from ipate.models.named import DEFAULT
from ipate.students.card import origin
from ipate.students.deployed import DeployedStudent
from ipate.students.scores import label_notes
from ipate.students.student import Student, find_student, over_all_classes


def student_of(classifier: Any) -> Student:
    """Return the student that a classifier was given, or the one that suits its pool; before `fit`, that of tables."""
    usual = getattr(classifier, "_usual_student", DEFAULT)
    return find_student(usual if classifier.student is None else classifier.student)


def _student_has(method: str) -> Callable[[Any], bool]:
    """Return the condition that the student has a method.

    Before `fit`, and where a single class was released and so a constant took its place, the given student decides.
    """

    def check(self: Any) -> bool:
        trained = getattr(self, "student_", None)
        if trained is not None and not isinstance(trained, DummyClassifier):
            return hasattr(trained, method)
        with suppress(IpateError):  # an invalid student is refused by `fit`
            return hasattr(student_of(self).make({}), method)
        return False

    return check


class StudentMethods:
    """The methods of a classifier that has a trained `student_` and `classes_`; predictions have no privacy cost."""

    classes_: NDArray[Any]
    student_: Any

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the student's class for every row."""
        rows = self._rows(X)
        return np.asarray(self.student_.predict(rows))

    @available_if(_student_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the student's probabilities, with columns as in `classes_` and 0 for classes without a label."""
        rows = self._rows(X)
        return self._over_all(self.student_.predict_proba(rows), empty=0.0)

    @available_if(_student_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the student's scores, with columns as in `classes_` if there are more than two classes."""
        rows = self._rows(X)
        if isinstance(self.student_, DummyClassifier):  # a constant, which has no scores of its own
            given = self.student_.predict_proba(rows)
            scores = self._over_all(np.where(given > 0, 1.0, -1.0), empty=-1.0)
            return scores[:, 1] if len(self.classes_) == 2 else scores
        return self._over_all(self.student_.decision_function(rows), empty=-np.inf)

    def save_student(self, folder: str | Path, *, name: str = "PATEClassifier") -> Path:
        """Write the student with its classes, columns, model card and guarantee, for `ipate.load_student`.

        The folder holds neither the teachers nor anything else about people except what `guarantee_` covers. If the
        guarantee is not releasable, the model card says that the folder must not be published.

        Parameters
        ----------
        folder : path
            The folder to write.
        name : str
            The name of the data in the model card.

        Returns
        -------
        Path
            The folder.
        """
        check_is_fitted(self)
        return self._deployed(name).save(folder)

    def _deployed(self, name: str) -> DeployedStudent:
        own: Any = self
        allocation = own.allocation_
        described = {**own._engine.describe(own.choice_, allocation), "student": type(self.student_).__name__}
        facts = origin(
            own._record,
            data=name,
            how=own._engine.report(own.choice_, allocation).manner.card,
            classes=self.classes_.tolist(),
            n_people=allocation.people.n_people,
            unprotected=own._unprotected,
            notes=self._notes(),
            **described,
        )
        return DeployedStudent(model=self.student_, classes_=self.classes_, frame=own._frame, facts=facts)

    def _notes(self) -> tuple[str, ...]:
        """Return the notes on the released labels."""
        own: Any = self
        return label_notes(own.labels_, self.classes_.tolist(), n_features=getattr(self, "n_features_in_", None))

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self)
        own: Any = self
        try:
            return own._validated(check_form(without(X, own._not_features), "X"))
        except ValueError as error:  # scikit-learn's; the rows are the caller's own
            raise InputError(str(error)) from error

    def _over_all(self, scores: Any, *, empty: float) -> NDArray[np.float64]:
        return over_all_classes(scores, np.asarray(self.student_.classes_), self.classes_, empty=empty)
