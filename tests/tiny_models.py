"""Random models of a few thousand weights, saved the way transformers saves real ones."""

from pathlib import Path

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "how", "many", "red", "apples", "are", "in"]
WORDS += ["two", "boxes", "of", "ten", "?"]


def save_tiny_bert(folder: Path) -> Path:
    """A two-layer BERT of width 24 that reads 32 tokens, with a word-level tokenizer."""
    import torch
    from transformers import BertConfig, BertModel

    _save_tokenizer(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def save_tiny_qwen(folder: Path) -> Path:
    """A two-layer Qwen3 of width 16: causal, padded at the left, with a chat template."""
    import torch
    from transformers import Qwen3Config, Qwen3Model

    template = "{% for m in messages %}how many {{ m['content'] }} ?{% endfor %}"
    _save_tokenizer(folder, padding_side="left", chat_template=template)
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    Qwen3Model(config).save_pretrained(folder)
    return folder


def _save_tokenizer(folder: Path, **options: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=32,
        **options,
    ).save_pretrained(folder)
