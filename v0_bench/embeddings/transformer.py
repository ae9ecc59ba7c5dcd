"""Encoder for sentence-transformers and transformers models, in float32 and without remote code.

Texts are encoded longest first in batches of about equal numbers of tokens, which wastes little
on padding and bounds memory whatever the texts are.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from v0_bench.errors import V0BenchError

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer
    from torch import nn
    from transformers import PreTrainedModel

GROUP = 256  # texts tokenised together and sorted by their number of tokens
BATCH_TOKENS = 2048  # measured: small batches stay in the processor cache
MAX_TOKENS = 8192  # even where a model would take more: attention memory and time grow with it
# Characters kept per token before tokenisation. Tokens are 4 characters long on average, so this
# changes a vector only if a text's first tokens are over 64 characters long on average.
CHARACTERS_PER_TOKEN = 64
HALF_MAX = float(np.finfo(np.float16).max)
POOLING_MODES = {"mean": "mean", "last": "lasttoken", "cls": "cls"}

Batch = TypeVar("Batch")


class TransformerEncoder:
    """A frozen model from a folder; `pooling` None keeps the model's own."""

    def __init__(self, folder: Path, pooling: str | None, device: str) -> None:
        check_device(device)
        self._depths = pooling == "depths"
        try:
            self._model = _load(folder, None if self._depths else pooling, device)
        except Exception as error:  # many libraries, many exception types, one cause: the folder
            raise V0BenchError(f"Cannot load the backbone in {folder}: {error}") from error
        # Tokenizers are not safe to share between threads; they take little of the time.
        self._tokenizing = threading.Lock()
        self._threads = _threads(device)
        limit = self._model.max_seq_length or MAX_TOKENS
        if MAX_TOKENS < limit < float("inf"):  # infinite: static word vectors, read in one pass
            self._model.max_seq_length = MAX_TOKENS
        self._max_tokens = int(min(limit, MAX_TOKENS))
        self.dimension = (self._depths_batch if self._depths else self._encode_batch)([""]).shape[1]

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (positions in `texts`, vectors float32 (b, d)) batch by batch, longest first."""
        compute = self._depths_batch if self._depths else self._encode_batch
        return self._in_batches(texts, self._max_tokens, compute)

    def token_states(
        self, texts: Sequence[str], layer: int, max_tokens: int | None
    ) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Yield (positions in `texts`, for each its states float16 (tokens, D)) likewise.

        Raises V0BenchError for a layer the model lacks, a model that has no token states, or
        states that are NaN or too large for half precision.
        """
        limit = min(max_tokens or self._max_tokens, self._max_tokens)
        model = self._transformer()
        layers = model.config.num_hidden_layers
        if not -layers <= layer <= -1:
            raise V0BenchError(
                f"layer {layer} does not exist: use -1 (the last) to -{layers} (the first)."
            )
        return self._in_batches(
            texts, limit, lambda batch: self._states_batch(model, batch, layer, limit)
        )

    def _in_batches(
        self, texts: Sequence[str], limit: int, compute: Callable[[list[str]], Batch]
    ) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yield (positions in `texts`, computed batch), texts cut to `limit` tokens."""
        order = np.argsort([-len(text) for text in texts], kind="stable")
        with _single_threaded_workers(self._threads) as workers:
            for start in range(0, len(order), GROUP):
                group = order[start : start + GROUP]
                shortened = [self._shorten(texts[i]) for i in group]
                lengths = np.minimum(self._token_counts(shortened), limit)
                batches = list(_batches(lengths))
                contents = [[shortened[i] for i in batch] for batch in batches]
                computed = workers.map(compute, contents)
                yield from zip((group[batch] for batch in batches), computed, strict=True)

    def _shorten(self, text: str) -> str:
        text = text[: self._max_tokens * CHARACTERS_PER_TOKEN]
        # Tokenizers refuse halves of surrogate pairs, which JSON can carry.
        return text.encode("utf-8", "replace").decode("utf-8")

    def _token_counts(self, texts: list[str]) -> np.ndarray:
        tokenizer = self._model.tokenizer
        if not callable(tokenizer):  # models of static word vectors: no padding to save
            return np.array([len(text) for text in texts])
        encoded = tokenizer(texts, truncation=True, max_length=self._max_tokens)
        return np.array([len(ids) for ids in encoded["input_ids"]])

    def _encode_batch(self, texts: list[str]) -> np.ndarray:
        import torch

        with torch.inference_mode():
            with self._tokenizing:
                features = self._model.preprocess(texts)
            features = {
                name: value.to(self._model.device) if torch.is_tensor(value) else value
                for name, value in features.items()
            }
            vectors = self._model(features)["sentence_embedding"].cpu().numpy()
        return _finite(vectors)

    def _states_batch(
        self, model: "PreTrainedModel", texts: list[str], layer: int, limit: int
    ) -> list[np.ndarray]:
        hidden, mask = self._hidden_states(model, texts, limit)
        counts = mask.sum(1).int().tolist()
        states = [hidden[layer][i, :count].cpu().numpy() for i, count in enumerate(counts)]
        largest = max(float(np.abs(each).max()) for each in states)
        if not largest <= HALF_MAX:  # NaN too
            raise V0BenchError(
                f"The backbone's layer {layer} holds {largest:g}, which half precision cannot "
                "keep: its weights are bad, or another layer is needed."
            )
        return [each.astype(np.float16) for each in states]

    def _depths_batch(self, texts: list[str]) -> np.ndarray:
        import torch

        hidden, mask = self._hidden_states(self._transformer(), texts, self._max_tokens)
        last, weights = len(hidden) - 1, mask[..., None] / mask.sum(1)[:, None, None]
        depths = [hidden[round(last * share)] for share in (1 / 3, 2 / 3, 1)]
        means = [(states * weights).sum(1) for states in depths]
        largest = hidden[last].masked_fill(mask[..., None] == 0, -torch.inf).amax(1)
        return _finite(torch.cat([*means, largest], dim=1).cpu().numpy())

    def _hidden_states(
        self, model: "PreTrainedModel", texts: list[str], limit: int
    ) -> "tuple[tuple[torch.Tensor, ...], torch.Tensor]":
        """States (b, L, D) after each layer, the embedding first, and the mask (b, L), 0 or 1."""
        import torch

        with self._tokenizing:
            # Padded at the right, whatever the model's habit: no token then sees the padding of
            # a causal model, and positions start at 0.
            encoded = self._model.tokenizer(
                texts,
                truncation=True,
                max_length=limit,
                padding=True,
                padding_side="right",
                return_attention_mask=True,
                return_tensors="pt",
            ).to(self._model.device)
        mask = encoded["attention_mask"]
        # A tokenizer without special tokens finds none in an empty text: it has one state, zero.
        empty = mask.sum(1) == 0
        if empty.all():
            zero = torch.zeros(len(texts), 1, model.config.hidden_size)
            return (zero,) * (model.config.num_hidden_layers + 1), torch.ones(len(texts), 1)
        with torch.inference_mode():
            output = model(**encoded, output_hidden_states=True)
            # The last of `hidden_states` is not always what the model gives out (a final norm).
            states = (*output.hidden_states[:-1], output.last_hidden_state)
            if empty.any():
                states = tuple(each.masked_fill(empty[:, None, None], 0) for each in states)
                mask[empty, 0] = 1
        return states, mask

    def _transformer(self) -> "PreTrainedModel":
        model = getattr(self._model[0], "model", None)
        if model is None or not callable(self._model.tokenizer):
            raise V0BenchError("This backbone has no token states: it is not a transformer.")
        return model


def _finite(vectors: np.ndarray) -> np.ndarray:
    if not np.isfinite(vectors).all():
        raise V0BenchError("The backbone returned NaN or infinite values: its weights are bad.")
    return vectors.astype(np.float32, copy=False)


def _threads(device: str) -> int:
    import torch

    return torch.get_num_threads() if torch.device(device).type == "cpu" else 1


@contextmanager
def _single_threaded_workers(number: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that each compute a batch alone.

    Measured on two cores: a tenth faster than two threads on one batch, and twice as fast beside
    another busy process, because no thread waits for one that was put aside.
    """
    import torch

    before = torch.get_num_threads()
    with ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        try:
            yield workers
        finally:
            workers.shutdown(cancel_futures=True)
            torch.set_num_threads(before)


def _batches(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Cut texts, longest first, into batches of at most BATCH_TOKENS padded tokens (or one)."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, BATCH_TOKENS // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def check_device(device: str) -> None:
    import torch

    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise V0BenchError(f"Unknown device {device!r}: use cpu, cuda, cuda:N or mps.") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise V0BenchError(f"Device {device!r} was asked for, but torch sees no CUDA GPU: use cpu.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise V0BenchError("Device 'mps' was asked for, but torch cannot use it here: use cpu.")


def _load(folder: Path, pooling: str | None, device: str) -> "SentenceTransformer":
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    own_logger = logging.getLogger("sentence_transformers")
    level = own_logger.level
    # It announces the default mean pooling at every load; the choice is documented instead.
    own_logger.setLevel(logging.ERROR)
    try:
        # float32 whatever the weights are stored in, so that machines agree.
        options = {"dtype": torch.float32}
        if pooling is None and (folder / "modules.json").is_file():
            modules = None
        else:
            modules = _modules(folder, pooling or "mean", options)
        return SentenceTransformer(
            str(folder) if modules is None else None,
            modules=modules,
            device=device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs=options,
        ).eval()
    finally:
        own_logger.setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _modules(folder: Path, pooling: str, options: "dict[str, torch.dtype]") -> "list[nn.Module]":
    """Token states -> pooling -> unit length, for a model that does not say so itself."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    states = Transformer(str(folder), model_kwargs=options)
    width = states.get_embedding_dimension()
    return [states, Pooling(width, POOLING_MODES[pooling]), Normalize()]
