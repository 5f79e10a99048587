"""A model folder small enough for the real vLLM on two CPU cores: random weights, a real tokenizer, a real chat template.

Only the folder's files matter (vLLM runs with `--load-format dummy`): a one-layer Qwen3, a byte-level BPE trained here in
seconds, and a ChatML template that renders tools, tool calls, reasoning and tool results as the Qwen family does.

Run with the interpreter of the vLLM environment: `python tiny_model.py FOLDER`.
"""

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

VOCABULARY = 8192
CONTEXT = 262_144
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CORPUS_CHARS = 3_000_000

TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\nYou may call one or more of these functions.\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\nReturn each call as JSON inside <tool_call></tool_call>.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'system' %}
{%- if not loop.first %}{{- raise_exception('a system message must be the first') }}{%- endif %}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning %}{{- '<think>\\n' + message.reasoning + '\\n</think>\\n' }}{%- endif %}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{%- if call.function.arguments is string %}{{- call.function.arguments }}
{%- else %}{{- call.function.arguments | tojson }}{%- endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- else %}
{{- raise_exception('unknown role: ' + message.role) }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
}


def corpus() -> Iterator[str]:
    """Code and prose of the standard library, and JSON and log lines made of the same words."""
    spent = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        spent += len(text)
        if spent > CORPUS_CHARS:
            return
        yield text
        lines = [line.strip() for line in text.splitlines() if line.strip()][:200]
        yield json.dumps([{"path": path.name, "line": n, "text": line} for n, line in enumerate(lines)], indent=2)
        yield "\n".join(
            f"2026-01-{n % 28 + 1:02d} 10:{n % 60:02d}:07,{n:03d} INFO {line}" for n, line in enumerate(lines)
        )


def make_model(folder: Path) -> None:
    """Write the model folder; a complete one is kept."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if (folder / "generation_config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    files = {
        "config.json": CONFIG,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
        "generation_config.json": {"eos_token_id": [2, 0], "pad_token_id": 0},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
