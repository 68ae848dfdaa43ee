"""`fl-app export`: the models of a finished run in the formats of other tools, checked."""

import filecmp
import io
import logging
import os
import shutil
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.normalisation import batch_norms
from fl_app.client.training import AnswersError
from fl_app.extras import installation
from fl_app.params import COMMUNITY
from fl_app.reasons import reason_of
from fl_app.records.output_folder import require
from fl_app.records.serving import FILE, GLOBAL_MODEL
from fl_app.use.card import write_card
from fl_app.use.formats import FORMATS, Answer, numbers
from fl_app.use.run import FinishedRun

log = logging.getLogger(__name__)
LARGEST = 1e-4
"""The largest difference between the answers of an exported model and PyTorch's, as a share of the
largest answer if this is above 1; for a network that computes with 16 bits, their rounding."""
REMEDY = (
    "in forward give sizes as x.shape[0], not len(x), and choose by torch.where, not if, since "
    "both are constants in a file; or use another format"
)
"""What to do about a network that a format can hold for some samples alone."""
IN_16_BITS = (
    "the network computes with 16 bits, which formats round at other places: let it compute in "
    "float32; otherwise, "
)
"""What can be the cause for a network of 16 bits."""
CHECKED = (1, 2, 5)
"""Numbers of samples with which an exported model is tried; the first two are often special."""
_TORCH = Path(torch.__file__).parent


@dataclass(frozen=True)
class Exported:
    """A written model: its name, its file, and the largest difference from PyTorch's answers."""

    name: str
    file: Path
    difference: float


def export(
    run: FinishedRun, form: str, to: Path, names: list[str], *, client: int | None = None
) -> list[Exported]:
    """Write models by name into the folder `to`, with a model card and serving.json.

    Each has a dynamic number of samples. `client` is the one whose model it is, if a part of it
    stays with each client; file and card then name it. Raises ValueError for a format that the
    network does not have, for a missing package, for answers that differ by more than `LARGEST`,
    for the run's own folder, and for one that keeps models of another run; then `to` is as it was.
    """
    if to.resolve() == run.folder:
        raise ValueError(f"the folder must be another than that of the run, got {to}; choose one")
    require(to)
    owner = client if run.own(client) else None
    done = []
    with _whole_or_nothing(to, run) as place:
        for name in names:
            called = name if owner is None else f"{name}_client_{owner}"
            file = f"{called}.{FORMATS[form][1]}"
            model, fresh = (run.load(name, run.network(), client=client) for _ in range(2))
            _check_answers(run, called, fresh)
            answer = _written(run, model, form, place / file)
            done.append(Exported(called, to / file, _difference(run, called, fresh, answer)))
        shutil.copy(run.folder / FILE, place)
        files = [(each.name, each.file.name, each.difference) for each in done]
        scored = owner is not None or not run.serving.get("own_models", False)
        write_card(run, place, files, owner=owner, scored=scored)
    return done


@contextmanager
def _whole_or_nothing(to: Path, run: FinishedRun) -> Iterator[Path]:
    """Yield a folder for files, which are moved into `to` at the end, and removed by an error."""
    to.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=to, prefix=".unfinished_") as place:
        yield Path(place)
        _check_rest(to, run, {file.name for file in Path(place).iterdir()})
        for file in sorted(Path(place).iterdir()):
            os.replace(file, to / file.name)


def _check_rest(to: Path, run: FinishedRun, written: Collection[str]) -> None:
    """Raise ValueError if models of another run would stay in `to`, beside the card of this one."""
    if not (to / FILE).exists() or filecmp.cmp(to / FILE, run.folder / FILE, shallow=False):
        return
    endings = tuple(f".{ending}" for _, ending in FORMATS.values())
    rest = sorted(each.name for each in to.iterdir() if each.name.endswith(endings))
    if rest := [name for name in rest if name not in written]:
        raise ValueError(
            f"the folder must keep no models of another run or round, got {', '.join(rest)} in "
            f"{to}; remove them, or give another folder"
        )


def _written(run: FinishedRun, model: nn.Module, form: str, file: Path) -> Answer:
    """Write a model; return what answers by the file. Raises ValueError, see `export`."""
    try:
        with _quiet() as told:
            answer = FORMATS[form][0](run, model, samples(run, 3), file)
        _warn_of_choices(told, file.name)
        return answer
    except ImportError as error:
        raise ValueError(
            f"format {form} needs a package that is missing ({error}); {installation('onnx')}"
        ) from error
    except ValueError:
        raise
    except Exception as error:  # an exporter fails in its own way for each network
        cause = error
        while isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        reason = (str(cause) or type(cause).__name__).strip().splitlines()[0]
        fixed = reason.startswith("Constraints violated (batch)")
        raise ValueError(
            f"the network must be one that {form} can hold, got {type(cause).__name__}: "
            f"{reason}; {REMEDY if fixed else 'use another format'}"
        ) from error


@contextmanager
def _quiet() -> Iterator[list[warnings.WarningMessage]]:
    """Collect the warnings of exporters, and drop the pages that they print of a network."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(record=True) as told, redirect_stderr(io.StringIO()):
            warnings.simplefilter("always")
            yield told
    finally:
        logging.disable(before)


def _warn_of_choices(told: Iterable[warnings.WarningMessage], file: str) -> None:
    """Log where a network chooses by a value, which a traced file does only once.

    The layers of torch choose by shapes and modes.
    """
    choices = (each for each in told if "Python boolean" in str(each.message))
    own = (each for each in choices if _TORCH not in Path(each.filename).parents)
    for where in sorted({f"{Path(each.filename).name}:{each.lineno}" for each in own}):
        log.warning(
            "%s does not choose as the network at %s does: it always goes the way of the samples "
            "it was written with; if that depends on values, use torch.where or another format",
            file, where,
        )  # fmt: skip


def default_names(run: FinishedRun) -> list[str]:
    """Return the communities' models, and the global one if a client uses it.

    A folder without either, as one with a personal model, has all of its models exported.
    """
    used = {name for names in run.clients.values() for name in names}
    found = [n for n in run.models if n.startswith(COMMUNITY) or (n == GLOBAL_MODEL and n in used)]
    return found or list(run.models)


def samples(run: FinishedRun, count: int) -> Tensor:
    """Return random inputs (count, ...): numbers, or tokens that every run has."""
    draw = np.random.default_rng(count)
    shape = (count, *run.input_shape)
    if run.serving["input_type"] == "int64":
        return torch.from_numpy(draw.integers(0, 3, shape))
    return torch.from_numpy(draw.standard_normal(shape).astype(np.float32))


def _tried(run: FinishedRun, model: nn.Module, counts: Sequence[int]) -> Iterator[Tensor]:
    """Yield inputs of these numbers of samples, the last one also with extreme values.

    A network may choose by the values of its inputs, such as their maximum or a token.
    """
    for count in counts:
        yield samples(run, count)
    usual = samples(run, counts[-1])
    if usual.is_floating_point():
        far = 10 * usual.abs()
        yield from (far, -far, torch.zeros_like(usual))
        return
    embeddings = (each for each in model.modules() if isinstance(each, nn.Embedding))
    rows = min((each.num_embeddings for each in embeddings), default=1)
    yield from (torch.zeros_like(usual), torch.full_like(usual, rows - 1))


def _answered(
    name: str, model: nn.Module, tried: Iterable[Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs with PyTorch's answers, if these are finite; raises ValueError for none."""
    some, got = False, "others"
    for inputs in tried:
        try:
            answers = model(inputs)
        except Exception as error:  # a network can refuse some, as attention does for padding alone
            got = reason_of(error)
            continue
        if not isinstance(answers, Tensor):
            raise AnswersError(answers)
        if np.isfinite(numbers(answers)).all():
            some = True
            yield inputs, answers
    if not some:
        raise ValueError(
            f"the answers of {name} must be finite, got {got} for random samples; train it longer "
            "or with a smaller learning rate, or let its forward take any values"
        )


@torch.no_grad()
def _check_answers(run: FinishedRun, name: str, model: nn.Module) -> None:
    """Raise ValueError for answers that no format holds, before one fails in its own way."""
    next(_answered(name, model, _tried(run, model, _counts(model))))


def _counts(model: nn.Module) -> Sequence[int]:
    """Return the numbers of samples to try: a network that mixes samples takes none alone."""
    mixes = any(layer.running_mean is None for layer in batch_norms(model))
    return CHECKED[mixes:]


@torch.no_grad()
def _difference(run: FinishedRun, name: str, model: nn.Module, answer: Answer) -> float:
    """Return the largest difference from PyTorch's answers; raises ValueError if it is large."""
    gaps = []
    for inputs, answered in _answered(name, model, _tried(run, model, _counts(model))):
        wanted, found = numbers(answered), _found(answer, inputs, name)
        rounding = _rounding(model, answered)
        limit = max(LARGEST, rounding)
        if wanted.shape != found.shape:
            raise ValueError(
                f"the exported {name} must answer {len(inputs)} samples in the form "
                f"{wanted.shape}, got {found.shape}; {REMEDY}"
            )
        gaps.append(float(np.abs(wanted - found).max() / max(1.0, np.abs(wanted).max())))
    if not max(gaps) <= limit:
        raise ValueError(
            f"the answers of the exported {name} must differ by at most {limit:.2g}, got "
            f"{max(gaps):.2g}; {IN_16_BITS if limit == rounding else ''}{REMEDY}"
        )
    return max(gaps)


def _rounding(model: nn.Module, answers: Tensor) -> float:
    """Return the rounding of the coarsest numbers among parameters and answers."""
    every = (*model.parameters(), answers)
    kinds = {each.dtype for each in every if each.is_floating_point()}
    return max((torch.finfo(kind).eps for kind in kinds), default=0.0)


def _found(answer: Answer, inputs: Tensor, name: str) -> np.ndarray:
    """Return the answers of a file; raises ValueError if it does not take so many samples."""
    try:
        return answer(inputs)
    except Exception as error:  # each format fails in its own way, torch over many lines
        raise ValueError(
            f"the exported {name} must take any number of samples, got an error with "
            f"{len(inputs)}; {REMEDY}"
        ) from error
