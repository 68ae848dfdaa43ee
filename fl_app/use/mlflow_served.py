"""What an MLflow server answers with: the models of a run, chosen by client."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel
from torch import nn

from fl_app.use.mlflow_model import CLIENT, NO_CLIENT
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
        self, context: Any, model_input: Any, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return predictions and probabilities; a column `client` is before the parameter."""
        whole = int((params or {}).get(CLIENT, NO_CLIENT))
        try:
            if not isinstance(model_input, pd.DataFrame) or CLIENT not in model_input:
                return self._answers(model_input, whole)
            clients = model_input[CLIENT].fillna(whole).astype(int)
            given = model_input.drop(columns=CLIENT)
            parts = [self._answers(rows, int(c)) for c, rows in given.groupby(clients)]
            return pd.concat(parts).loc[model_input.index]
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error

    def _answers(self, given: Any, client: int) -> pd.DataFrame:
        if client == NO_CLIENT:
            raise ValueError(
                f"{CLIENT} must be given as a column or as a parameter; name one of this run"
            )
        name = self.run.name(client=client)
        name = f"{name} of {client}" if self.run.serving["local"] else name
        if name not in self.models:
            self.models[name] = self.run.model(client=client)
        frame = isinstance(given, pd.DataFrame)
        samples = given.replace({np.nan: None}) if frame else np.asarray(given)
        columns = answers(self.run, self.models[name], self.run.preprocess(samples))
        return pd.DataFrame(columns, index=given.index if frame else None)
