"""The three policies: their tokenizer, their architectures, and what each is taught at first."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    SeedOssConfig,
    SeedOssForCausalLM,
)

from v0_bench.micro import FAMILIES, LEVELS, draw

VOCABULARY = 768
PAD, END, USER, ASSISTANT = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"
BOX, CLOSE = "\\boxed{", "}"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True)
class Teaching:
    """How a policy is taught before reinforcement learning.

    Its demonstrations are right with a probability that differs by family and level: drawn once
    for every family from `right`, and less by `drop` for every level above the first. A family
    among `rare` is shown far less often than the others.
    """

    seed: int
    steps: int
    rare: tuple[str, ...]
    right: tuple[float, float] = (0.2, 0.65)
    drop: float = 0.03


TEACHING = {
    "micro-llama": Teaching(1, 2600, ("dates", "units", "stories")),
    "micro-seed": Teaching(2, 1800, ("clock", "ages", "sequences")),
    "micro-qwen3": Teaching(3, 1650, ("dates", "clock", "geometry")),
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    r"""A byte-level BPE in which every digit, `\boxed{` and `}` are tokens of their own."""
    rng = Random(0)
    texts = [
        draw(rng, family, level, "train").text
        for _ in range(40)
        for family in FAMILIES
        for level in LEVELS
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?\d| ?[^\W\d]+|[^\w\s]|\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 1,
        special_tokens=[PAD, END, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (BOX, CLOSE)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        model_max_length=128,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def make_policy(name: str, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """An untrained policy; the seed of its weights is torch's."""
    shared = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        "max_position_embeddings": 128,
        "attn_implementation": "sdpa",
    }
    if name == "micro-llama":
        return LlamaForCausalLM(
            LlamaConfig(
                hidden_size=72,
                intermediate_size=192,
                num_hidden_layers=4,
                num_attention_heads=4,
                num_key_value_heads=4,
                tie_word_embeddings=True,
                **shared,
            )
        )
    if name == "micro-seed":
        return SeedOssForCausalLM(  # Llama with biases, grouped queries and a free head size
            SeedOssConfig(
                hidden_size=96,
                intermediate_size=288,
                num_hidden_layers=4,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=24,
                attention_out_bias=False,
                attention_dropout=0.0,
                residual_dropout=0.0,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                tie_word_embeddings=True,
                **shared,
            )
        )
    return Qwen3ForCausalLM(
        Qwen3Config(
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            tie_word_embeddings=True,
            **shared,
        )
    )
