"""What an MLflow server answers with: the models of a run, chosen by client."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel
from torch import nn

from fl_app.use.mlflow_model import CLIENT, features
from fl_app.use.predict import answers
from fl_app.use.run import FinishedRun, load_run


class ServedRun(PythonModel):  # type: ignore[misc]
    """Answers raw samples by the model of a client; a wrong sample is a bad request."""

    run: FinishedRun
    models: dict[str, nn.Module]

    def load_context(self, context: Any) -> None:
        """Load the run that was saved with the model."""
        self.run, self.models = load_run(context.artifacts["run"]), {}

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return predictions and probabilities; a column `client` is before the parameter.

        The samples can be an array too; MLflow warns of an annotation that tells so.
        """
        client = (params or {}).get(CLIENT)
        frame, of_data = isinstance(model_input, pd.DataFrame), features(self.run)
        try:
            if frame and CLIENT in model_input and CLIENT not in of_data and len(model_input):
                return self._by_row(model_input, client)
            return self._answers(model_input, client)
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error

    def _by_row(self, given: pd.DataFrame, client: Any) -> pd.DataFrame:
        """Answer each row by the model of the client in its column, or else of `client`."""
        clients = [client if pd.isna(each) else each for each in given[CLIENT]]
        rows: dict[Any, list[int]] = {}
        for row, each in enumerate(clients):
            rows.setdefault(each, []).append(row)
        rest = given.drop(columns=CLIENT)
        parts = [self._answers(rest.iloc[places], each) for each, places in rows.items()]
        return pd.concat(parts).iloc[np.argsort(np.concatenate([*rows.values()]))]

    def _answers(self, given: Any, client: Any) -> pd.DataFrame:
        if client is None:
            raise ValueError(
                f"{CLIENT} must be given as a column or as a parameter; name one of this run"
            )
        number = self.run.client_id(str(client))
        name = self.run.name(client=number)
        name = f"{name} of {number}" if self.run.kept_by else name
        if name not in self.models:
            self.models[name] = self.run.model(client=number)
        frame = isinstance(given, pd.DataFrame)
        samples = given.replace({np.nan: None}) if frame else np.asarray(given)
        columns = answers(self.run, self.models[name], self.run.preprocess(samples))
        return pd.DataFrame(columns, index=given.index if frame else None)
